"""Sequences of all lengths: the shapes of a call are others than those of the last thousand calls, as where sentences are not padded.

What a framework keeps of a call of one shape is of no use here, and must not be in the way. A timed call goes through eight shapes of (samples,
length) whose sizes sum to the same; 2,048 different ones come before the first comes again.
"""

from __future__ import annotations

import itertools

from benchmarks.case import case

LONGEST, MOST, WIDTH, HEADS, SYMBOLS = 512, 4, 32, 4, 64


def every_length(work):
    """`work(samples, length)` with eight other shapes each time."""
    lengths = itertools.cycle(range(1, LONGEST // 2 + 1))

    def eight():
        length = next(lengths)
        for samples in range(1, MOST + 1):
            work(samples, length)
            work(samples, LONGEST + 1 - length)

    return eight


def numbers(torch, device, **options):
    return torch.randn(MOST, LONGEST, WIDTH, device=device, **options)


@case(wanted=1.0, grad=[False, True])
def pointwise(torch, device, grad):
    """relu(x * y + 1)."""
    x, y = numbers(torch, device, requires_grad=grad), numbers(torch, device)
    return every_length(lambda n, length: torch.relu(x[:n, :length] * y[:n, :length] + 1))


@case(wanted=1.0)
def cat(torch, device):
    """Two tensors of these lengths one after another."""
    x, y = numbers(torch, device), numbers(torch, device)
    return every_length(lambda n, length: torch.cat([x[:n, :length], y[:n, : LONGEST + 1 - length]], 1))


@case(wanted=1.0)
def factories(torch, device):
    """Zeros, positions, a mask and noise, of these lengths."""

    def make(n, length):
        torch.zeros(n, length, device=device)
        torch.arange(length, device=device)
        torch.ones(length, length, dtype=torch.bool, device=device).tril_()
        torch.randn(n, length, device=device)

    return every_length(make)


@case(wanted=1.0)
def reductions(torch, device):
    """Softmax, a norm, a mean and the largest, over the last dimension."""
    x = numbers(torch, device)

    def reduce(n, length):
        rows = x[:n, :length]
        torch.softmax(rows, -1)
        torch.nn.functional.layer_norm(rows, (WIDTH,))
        rows.mean(-1)
        rows.argmax(-1)

    return every_length(reduce)


@case(wanted=1.0)
def padding(torch, device):
    """The sequences of a batch in one tensor, and which of its elements are none: written into zeros."""
    x = numbers(torch, device)

    def pad(n, length):
        whole, known = torch.zeros(2 * n, length, WIDTH, device=device), torch.zeros(2 * n, length, dtype=torch.bool, device=device)
        for sample in range(n):
            short = length - sample % length
            whole[sample, :short] = x[sample, :short]
            known[sample, :short] = True
        return whole.masked_fill(~known.unsqueeze(-1), 0.0)

    return every_length(pad)


def backward_of(model, loss_of):
    """A step without an optimizer: the gradients of a model for one batch."""

    def step(n, length):
        for p in model.parameters():
            p.grad = None
        loss_of(n, length).backward()

    return step


@case(wanted=1.0)
def mlp(torch, device):
    """32-64-64 with GELU, cross entropy, forward and backward."""
    nn, F = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, SYMBOLS)).to(device)
    x, target = numbers(torch, device), torch.randint(0, SYMBOLS, (MOST, LONGEST), device=device)
    return every_length(
        backward_of(model, lambda n, length: F.cross_entropy(model(x[:n, :length]).flatten(0, 1), target[:n, :length].flatten()))
    )


@case(wanted=1.0)
def gpt_block(torch, device):
    """Embedding, one block with four heads, cross entropy, forward and backward."""
    F = torch.nn.functional
    model = block(torch).to(device)
    symbols = torch.randint(0, SYMBOLS, (MOST, LONGEST + 1), device=device)
    return every_length(
        backward_of(
            model, lambda n, length: F.cross_entropy(model(symbols[:n, :length]).flatten(0, 1), symbols[:n, 1 : length + 1].flatten())
        )
    )


def block(torch):
    """A transformer of one block."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.symbols, self.places = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(LONGEST, WIDTH)
            self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            self.head = nn.Linear(WIDTH, SYMBOLS)

        def forward(self, symbols):
            B, T = symbols.shape  # samples, length
            x = self.symbols(symbols) + self.places(torch.arange(T, device=symbols.device))  # (B, T, C)
            heads = self.qkv(self.before_attention(x)).view(B, T, 3, HEADS, WIDTH // HEADS)
            q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, heads, T, C / heads)
            found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(found.transpose(1, 2).reshape(B, T, WIDTH))
            return self.head(x + self.mlp(self.before_mlp(x)))

    return Block()
