"""PyTorch Geometric: seventeen layers, batches of graphs, training, transforms, heterogeneous graphs."""

from io import BytesIO

import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
import torch_geometric.utils as U
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import (
    APPNP,
    GAE,
    GCN,
    VGAE,
    ARMAConv,
    BatchNorm,
    ChebConv,
    EdgeConv,
    GATConv,
    GatedGraphConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    GraphSAGE,
    HeteroConv,
    LGConv,
    Linear,
    PNAConv,
    ResGatedGraphConv,
    SAGEConv,
    SGConv,
    TAGConv,
    TopKPooling,
    TransformerConv,
    global_max_pool,
    global_mean_pool,
    summary,
)

torch.manual_seed(0)
ei = torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5, 5, 0], [1, 0, 2, 1, 4, 3, 5, 4, 0, 5]])
x = torch.randn(6, 4)
data = Data(x=x, edge_index=ei, y=torch.tensor([0, 1, 0, 1, 0, 1]))
print(data, data.num_nodes, data.is_undirected(), data.has_self_loops(), U.degree(ei[0]).tolist())
for name, c in {
    "gcn": lambda: GCNConv(4, 3),
    "gat": lambda: GATConv(4, 3, heads=2),
    "gatv2": lambda: GATv2Conv(4, 3),
    "sage": lambda: SAGEConv(4, 3),
    "gin": lambda: GINConv(torch.nn.Linear(4, 3)),
    "cheb": lambda: ChebConv(4, 3, K=2),
    "tag": lambda: TAGConv(4, 3),
    "graph": lambda: GraphConv(4, 3),
    "sg": lambda: SGConv(4, 3, K=2),
    "appnp": lambda: APPNP(2, 0.1),
    "edge": lambda: EdgeConv(torch.nn.Linear(8, 3)),
    "tr": lambda: TransformerConv(4, 3),
    "arma": lambda: ARMAConv(4, 3),
    "pna": lambda: PNAConv(4, 3, ["mean", "max", "std"], ["identity", "amplification"], deg=torch.tensor([0, 2, 4])),
    "gated": lambda: GatedGraphConv(4, 2),
    "lg": lambda: LGConv(),
    "res": lambda: ResGatedGraphConv(4, 3),
}.items():
    torch.manual_seed(1)
    m = c()
    out = m(x, ei)
    out.pow(2).sum().backward() if out.requires_grad else None
    print(
        name,
        m,
        tuple(out.shape),
        round(out.sum().item(), 4),
        round(sum(p.grad.abs().sum().item() for p in m.parameters() if p.grad is not None), 3),
    )


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = GCNConv(4, 8)
        self.c2 = GATConv(8, 8)
        self.n = BatchNorm(8)
        self.lin = Linear(8, 2)

    def forward(self, d):
        h = F.dropout(self.n(self.c1(d.x, d.edge_index)).relu(), 0.2, self.training)
        h = self.c2(h, d.edge_index)
        return self.lin(global_mean_pool(h, d.batch) + global_max_pool(h, d.batch))


torch.manual_seed(2)
graphs = [
    Data(x=torch.randn(n, 4), edge_index=U.to_undirected(torch.randint(0, n, (2, 2 * n))), y=torch.tensor([n % 2])) for n in range(4, 16)
]
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for e in range(4):
    for b in DataLoader(graphs, batch_size=4, shuffle=True):
        opt.zero_grad()
        loss = F.cross_entropy(net(b), b.y)
        loss.backward()
        opt.step()
    print(e, loss.item(), b)
print(Batch.from_data_list(graphs[:2]), [tuple(g.x.shape) for g in Batch.from_data_list(graphs[:2]).to_data_list()])
print(
    T.Compose([T.NormalizeFeatures(), T.AddSelfLoops()])(data.clone()),
    U.to_dense_adj(ei).shape,
    U.subgraph([0, 1, 2], ei, relabel_nodes=True)[0].tolist(),
    U.coalesce(ei).tolist(),
    U.softmax(torch.arange(10.0), ei[1]).tolist(),
    U.scatter(x, torch.tensor([0, 0, 1, 1, 2, 2]), reduce="mean").sum().item(),
)
torch.manual_seed(3)
print([v.shape for v in U.dropout_edge(ei, 0.5)], U.negative_sampling(ei, 6, 4).shape, U.k_hop_subgraph(0, 1, ei)[0].tolist())
pool = TopKPooling(4)
torch.manual_seed(4)
print(pool(x, ei)[0].shape)
print(GAE(GCNConv(4, 2)).encode(x, ei).shape, VGAE)
h = HeteroData()
h["a"].x = torch.randn(3, 4)
h["b"].x = torch.randn(2, 4)
h["a", "to", "b"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 1]])
h["b", "rev", "a"].edge_index = torch.tensor([[0, 1], [0, 2]])
print(h)
hc = HeteroConv({("a", "to", "b"): SAGEConv((4, 4), 3), ("b", "rev", "a"): GATConv((4, 4), 3, add_self_loops=False)})
print({k: tuple(v.shape) for k, v in hc(h.x_dict, h.edge_index_dict).items()})
print(summary(GCN(4, 8, 2, 3), x, ei))
file = BytesIO()
torch.save(net.state_dict(), file)
file.seek(0)
net.load_state_dict(torch.load(file))
print(len(net.state_dict()))

m = GraphSAGE(4, 8, 2, 2)
torch.manual_seed(5)
print(m.eval()(x, ei).shape)
