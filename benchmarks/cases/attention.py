"""Scaled dot product attention in float32, forward alone and with the gradients of query, key and value."""

from __future__ import annotations

from benchmarks.case import case

# (batch, heads, length, features of a head), causal: the heads of a small GPT, an encoder, a long context
SHAPES = {"small": ((12, 4, 64, 32), True), "middle": ((8, 8, 256, 64), False), "long": ((1, 8, 1024, 64), True)}


def _operands(torch, device, shape, needs):
    b, h, t, d = shape
    # as a model has them: one product gives all three, heads beside each other
    return [torch.randn(b, t, h, d, device=device, requires_grad=needs).transpose(1, 2) for _ in range(3)]


@case(wanted=1.0, shape=list(SHAPES))
def forward(torch, device, shape):
    """softmax(q k^T / sqrt(d)) v."""
    size, causal = SHAPES[shape]
    q, k, v = _operands(torch, device, size, False)
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(q, k, v, is_causal=causal)


@case(wanted=1.0, shape=list(SHAPES))
def train(torch, device, shape):
    """The same, and the gradients of q, k and v."""
    size, causal = SHAPES[shape]
    q, k, v = _operands(torch, device, size, True)
    leaves = [t._base for t in (q, k, v)]
    grad = torch.randn(*size, device=device)
    attend = torch.nn.functional.scaled_dot_product_attention

    def step():
        for leaf in leaves:
            leaf.grad = None
        attend(q, k, v, is_causal=causal).backward(grad, retain_graph=True)

    return step


@case(wanted=1.0, kind=["bool", "float"])
def masked(torch, device, kind):
    """The middle shape with a mask (L, S) that all heads share."""
    size, _ = SHAPES["middle"]
    q, k, v = _operands(torch, device, size, False)
    mask = torch.rand(size[2], size[2], device=device) > 0.2
    mask = mask if kind == "bool" else torch.zeros(size[2], size[2], device=device).masked_fill(~mask, float("-inf"))
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(q, k, v, attn_mask=mask)
