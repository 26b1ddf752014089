"""The models that introductions to PyTorch build, and a way to run a lesson with both frameworks.

A lesson is a function of the framework: `lesson(torch)`. It starts from the same seed in both, and must tell the same story.
"""

from __future__ import annotations

import warnings

import pytest
from history_oracle import compare

import flambeau

oracle = pytest.importorskip("torch")


def alike(program, *arguments, rtol: float = 1e-5, atol: float = 1e-6):
    """Run a program with PyTorch and with Flambeau from the same seed; what it returns must agree, and is returned."""
    expected, found = (seeded(program, framework, *arguments) for framework in (oracle, flambeau))
    compare(expected, found, "story", rtol, atol)
    return found


def seeded(program, framework, *arguments):
    """What a program gives with a framework, from seed 0, on one thread: models this small lose by more."""
    threads = framework.get_num_threads()
    framework.set_num_threads(1)
    framework.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return program(framework, *arguments)
    finally:
        framework.set_num_threads(threads)


def count(model) -> int:
    return sum(p.numel() for p in model.parameters())


def pictures(torch, batches: int = 6, size: int = 16, shape=(784,)) -> list:
    """Stand-ins for batches of pictures: each class has its own pattern, so that there is something to learn."""
    pattern, noise = torch.randn(10, *shape), torch.randn(batches, size, *shape)
    labels = torch.randint(0, 10, (batches, size))
    return [(pattern[labels[i]] + noise[i], labels[i]) for i in range(batches)]


def simple_net(torch):
    nn = torch.nn

    class SimpleNet(nn.Module):
        def __init__(self, input_dim, hidden_dim, output_dim):
            super().__init__()
            self.fc1 = nn.Linear(input_dim, hidden_dim)
            self.relu = nn.ReLU()
            self.fc2 = nn.Linear(hidden_dim, output_dim)

        def forward(self, x):
            x = self.fc1(x)
            x = self.relu(x)
            x = self.fc2(x)
            return x

    return SimpleNet(input_dim=784, hidden_dim=128, output_dim=10)


def mlp(torch, d_in=64, d_hidden=256, d_out=10, p_drop=0.1):
    nn = torch.nn

    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(d_in, d_hidden)
            self.act = nn.GELU()
            self.drop = nn.Dropout(p_drop)
            self.fc2 = nn.Linear(d_hidden, d_out)

        def forward(self, x):
            return self.fc2(self.drop(self.act(self.fc1(x))))

    return MLP()


def mnist_model(torch, norm=False):
    nn = torch.nn

    def block(i, o):
        return [nn.Linear(i, o), *([nn.BatchNorm1d(o)] if norm else []), nn.ReLU(), nn.Dropout(0.2)]

    return nn.Sequential(*block(784, 256), *block(256, 128), nn.Linear(128, 10))


def fashion_classifier(torch, hidden_dim=256):
    nn = torch.nn

    class FashionClassifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Flatten(),
                nn.Linear(784, hidden_dim),
                nn.ReLU(),
                nn.Dropout(0.2),
                nn.Linear(hidden_dim, hidden_dim),
                nn.ReLU(),
                nn.Dropout(0.2),
                nn.Linear(hidden_dim, 10),
            )

        def forward(self, x):
            return self.net(x)

    return FashionClassifier()


def transformer_block(torch, d_model, n_heads, d_ff, p_drop=0.1):
    nn = torch.nn

    class TransformerBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1 = nn.LayerNorm(d_model)
            self.attn = nn.MultiheadAttention(d_model, n_heads, dropout=p_drop, batch_first=True)
            self.ln2 = nn.LayerNorm(d_model)
            self.mlp = nn.Sequential(
                nn.Linear(d_model, d_ff),
                nn.GELU(),
                nn.Dropout(p_drop),
                nn.Linear(d_ff, d_model),
                nn.Dropout(p_drop),
            )

        def forward(self, x, attn_mask=None):
            h = self.ln1(x)
            attn_out, _ = self.attn(h, h, h, attn_mask=attn_mask, need_weights=False, is_causal=attn_mask is not None)
            x = x + attn_out
            x = x + self.mlp(self.ln2(x))
            return x

    return TransformerBlock()


def tiny_gpt(torch, vocabulary=50, d=32, heads=4, layers=2, context=16):
    nn = torch.nn

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocabulary, d)
            self.position_embed = nn.Embedding(context, d)
            self.blocks = nn.ModuleList([transformer_block(torch, d, heads, 4 * d) for _ in range(layers)])
            self.norm = nn.LayerNorm(d)
            self.head = nn.Linear(d, vocabulary, bias=False)
            self.head.weight = self.embed.weight  # tied
            self.register_buffer("causal_mask", torch.triu(torch.ones(context, context), diagonal=1).bool())
            self.apply(self.start)

        def start(self, module):
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

        def forward(self, ids):
            T = ids.size(1)
            x = self.embed(ids) + self.position_embed(torch.arange(T))
            for block in self.blocks:
                x = block(x, self.causal_mask[:T, :T])
            return self.head(self.norm(x))

    return GPT()


def cnn(torch):
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(576, 10),
    )


def build_param_groups(model, weight_decay=0.1):
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        if p.ndim < 2 or name.endswith(".bias") or "norm" in name.lower() or "embed" in name.lower():
            no_decay.append(p)
        else:
            decay.append(p)
    return [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}]
