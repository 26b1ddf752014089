"""rotary-embedding-torch, local-attention, opt_einsum, einx and jaxtyping: small parts that larger models are built from."""

import einx
import opt_einsum
import torch
from jaxtyping import Float, jaxtyped
from local_attention import LocalAttention, LocalTransformer
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

torch.manual_seed(0)
rotary = RotaryEmbedding(dim=8)
queries, keys = torch.randn(1, 2, 10, 16, requires_grad=True), torch.randn(1, 2, 10, 16)
turned = rotary.rotate_queries_or_keys(queries)
turned.square().sum().backward()
print("rotary", turned[0, 0, 3, :4].tolist(), queries.grad.sum().item())
picture = RotaryEmbedding(dim=4, freqs_for="pixel", max_freq=10).get_axial_freqs(4, 4)
print("axial", apply_rotary_emb(picture, torch.randn(1, 4, 4, 8))[0, 1, 2].tolist())
print("longer", [t.sum().item() for t in RotaryEmbedding(dim=8, use_xpos=True).rotate_queries_and_keys(queries.detach(), keys)])

attention = LocalAttention(dim=16, window_size=4, causal=True, look_backward=1, autopad=True)
print("local", attention(queries, keys, keys, mask=torch.ones(1, 10).bool()).sum().item())
model = LocalTransformer(num_tokens=32, dim=16, depth=2, max_seq_len=32, local_attn_window_size=8)
tokens = torch.randint(32, (2, 24))
loss = model(tokens, return_loss=True)
loss.backward()
print("transformer", loss.item(), sum(p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None))

a, b, c = torch.randn(3, 4), torch.randn(4, 5), torch.randn(5, 6)
print("opt_einsum", opt_einsum.contract("ij,jk,kl->il", a, b, c).sum().item(), opt_einsum.contract_path("ij,jk,kl->il", a, b, c)[0])
print(
    "einx", einx.mean("a [b]", a).tolist(), einx.dot("a [b], [b] c -> a c", a, b).sum().item(), einx.add("a b, a", a, a[:, 0]).sum().item()
)
print("softmax", einx.softmax("a [b]", a).sum().item())


@jaxtyped(typechecker=None)
def scale(x: Float[torch.Tensor, "batch features"]) -> Float[torch.Tensor, "batch features"]:  # noqa: F722 - sizes, not types
    return x * 2


print("jaxtyping", isinstance(a, Float[torch.Tensor, "3 4"]), isinstance(a, Float[torch.Tensor, "4 3"]), scale(a).sum().item())
