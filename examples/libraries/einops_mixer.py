"""einops: a vision transformer's cutting, mixing and pooling, written with rearrange, reduce, repeat, einsum, pack and the layers."""

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce
from torch import nn

torch.manual_seed(0)
images = torch.randn(4, 3, 16, 16)
model = nn.Sequential(
    Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4),
    nn.Linear(48, 32),
    nn.GELU(),
    EinMix("b t c -> b t (h d)", weight_shape="h c d", bias_shape="h d", c=32, h=4, d=8),
    Reduce("b t c -> b c", "mean"),
    nn.Linear(32, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(5):
    loss = nn.functional.cross_entropy(model(images), torch.arange(4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())

tokens = rearrange(images, "b c h w -> b (h w) c")
queries = repeat(tokens.mean(1), "b c -> b n c", n=2)
scores = einsum(queries, tokens, "b n c, b t c -> b n t").softmax(-1)
print("scores", reduce(scores**2, "b n t -> b", "sum").tolist())
packed, shapes = pack([tokens, queries], "b * c")
print("packed", tuple(packed.shape), [tuple(part.shape) for part in unpack(packed, shapes, "b * c")])
print("pooled", reduce(images, "b c (h 4) (w 4) -> b c", "max")[0].tolist())
print(model)
