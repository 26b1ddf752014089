"""Whole steps of training, and generation: what people wait for.

A step is zero_grad, forward, loss, backward, and the optimizer; the data are random and stay the same. Frameworks that are not spelled as
PyTorch bring the same jobs in words of their own (`jobs` of their dialect, such as jax_dialect.py).
"""

from __future__ import annotations

from benchmarks.case import case

SAMPLES = 60000  # in an epoch


def job(wanted):
    """Declare a case whose body other dialects may have words of their own for."""

    def declare(body):
        def chosen(torch, device):
            own = getattr(torch, "jobs", None)
            if own is None:
                return body(torch, device)
            if body.__name__ not in own:
                raise NotImplementedError(f"{torch.__name__} has no words for {body.__name__}")
            return own[body.__name__](device)

        chosen.__name__, chosen.__doc__, chosen.__module__ = body.__name__, body.__doc__, body.__module__
        return case(wanted=wanted)(chosen)

    return declare


def stepping(model, optimizer, loss_of, clip=None):
    """One step of training as a callable."""

    def step():
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        if clip is not None:
            clip(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


@job(wanted=0.4)
def mlp_step(torch, device):
    """784-256-128-10 with dropout 0.2, a batch of 64, Adam."""
    return mlp_with_adam(torch, device)


@job(wanted=0.6)
def mlp_step_captured(torch, device):
    """The step above; on a GPU as a CUDA graph that is replayed."""
    return mlp_with_adam(torch, device) if device == "cpu" else captured(torch, mlp_with_adam(torch, device, capturable=True))


def mlp_with_adam(torch, device, **options):
    F = torch.nn.functional
    torch.manual_seed(0)
    model = mlp(torch).to(device)
    x, y = torch.randn(64, 784, device=device), torch.randint(0, 10, (64,), device=device)
    return stepping(model, torch.optim.Adam(model.parameters(), lr=1e-3, **options), lambda model: F.cross_entropy(model(x), y))


def captured(torch, step):
    """A callable as the replay of a graph, by PyTorch's recipe."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@job(wanted=0.35)
def mnist_epoch(torch, device):
    """The step above over 60,000 shuffled samples that a DataLoader gathers, batches of 64."""
    F, data = torch.nn.functional, torch.utils.data
    torch.manual_seed(0)
    model = mlp(torch).to(device)
    dataset = data.TensorDataset(torch.randn(SAMPLES, 784), torch.randint(0, 10, (SAMPLES,)))
    loader = data.DataLoader(dataset, batch_size=64, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def epoch():
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        return loss

    return epoch


@job(wanted=0.7)
def cnn_step(torch, device):
    """conv 32, pool, conv 64, pool, 128, 10 on a batch of 64 images of 28 x 28, Adam."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10),
    ).to(device)  # fmt: skip
    x, y = torch.randn(64, 1, 28, 28, device=device), torch.randint(0, 10, (64,), device=device)
    return stepping(model, torch.optim.Adam(model.parameters(), lr=1e-3), lambda model: F.cross_entropy(model(x), y))


@job(wanted=0.75)
def gpt_step(torch, device):
    """A GPT of 4 layers, 128 wide, 4 heads, block 64, batch 12, 65 characters; AdamW, gradients clipped."""
    F = torch.nn.functional
    torch.manual_seed(0)
    model = gpt(torch, vocabulary=65, block=64).to(device)
    x, y = (torch.randint(0, 65, (12, 64), device=device) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_of = lambda model: F.cross_entropy(model(x).view(-1, 65), y.view(-1))  # noqa: E731
    return stepping(model, optimizer, loss_of, clip=torch.nn.utils.clip_grad_norm_)


@job(wanted=0.8)
def lstm_step(torch, device):
    """LSTM(64, 128) of two layers and a linear one over 50 steps of a batch of 32, Adam."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(64, 128, num_layers=2, batch_first=True)
            self.head = nn.Linear(128, 10)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    model = Net().to(device)
    x, y = torch.randn(32, 50, 64, device=device), torch.randint(0, 10, (32,), device=device)
    return stepping(model, torch.optim.Adam(model.parameters(), lr=1e-3), lambda model: F.cross_entropy(model(x), y))


@job(wanted=0.5)
def generate(torch, device):
    """64 tokens from the GPT above, one by one, the whole context each time."""
    torch.manual_seed(0)
    model = gpt(torch, vocabulary=65, block=64).to(device).eval()
    start = torch.zeros(1, 1, dtype=torch.long, device=device)

    def run():
        tokens = start
        with torch.no_grad():
            for _ in range(64):
                logits = model(tokens[:, -64:])[:, -1]
                chosen = torch.multinomial(torch.softmax(logits, -1), 1)
                tokens = torch.cat([tokens, chosen], 1)
        return tokens

    return run


def mlp(torch):
    """784-256-128-10 with dropout 0.2."""
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
    )


def gpt(torch, vocabulary, block, width=128, heads=4, layers=4):
    """The usual decoder: learned positions, norms first, gelu."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, width))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

        def forward(self, index):
            x = self.tokens(index) + self.positions(torch.arange(index.shape[1], device=index.device))
            return self.head(self.norm(self.blocks(x)))

    return GPT()
