"""Attention from scratch, a transformer block, and a language model of characters that learns a sentence and continues it."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = "the torch is lit and the night is young and the torch is light " * 4


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, longest):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest, dtype=torch.bool)), persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        weights = scores.masked_fill(~self.mask[:T, :T], float("-inf")).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, width, heads, longest, p_drop=0.0):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = CausalSelfAttention(width, heads, longest)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(p_drop))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, width=32, heads=4, layers=2, longest=32):
        super().__init__()
        self.longest = longest
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.blocks = nn.Sequential(*[Block(width, heads, longest) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(self._init)

    @staticmethod
    def _init(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.1)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.size(1), device=ids.device))
        return self.head(self.norm(self.blocks(x)))

    @torch.no_grad()
    def generate(self, ids, count):
        for _ in range(count):
            logits = self(ids[:, -self.longest :])[:, -1]
            ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=1)
        return ids


torch.manual_seed(0)
letters = sorted(set(TEXT))
ids = torch.tensor([letters.index(c) for c in TEXT])
model = GPT(len(letters))
print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(letters)} letters")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.01)
for step in range(60):
    starts = torch.randint(0, len(ids) - 33, (8,))
    x = torch.stack([ids[s : s + 32] for s in starts])
    y = torch.stack([ids[s + 1 : s + 33] for s in starts])
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step:3d} loss {loss.item():.2f}")
model.eval()
print("".join(letters[i] for i in model.generate(ids[None, :8], 24)[0].tolist()))

# the same block out of nn.MultiheadAttention, with a mask
attention = nn.MultiheadAttention(32, 4, batch_first=True)
x = torch.randn(2, 10, 32)
causal = torch.triu(torch.ones(10, 10), diagonal=1).bool()
y, _ = attention(x, x, x, attn_mask=causal, need_weights=False, is_causal=True)
changed = x.clone()
changed[:, -1] = 0
z, _ = attention(changed, changed, changed, attn_mask=causal, need_weights=False, is_causal=True)
print(y.shape, torch.allclose(y[:, :-1], z[:, :-1], atol=1e-6), torch.allclose(y[:, -1], z[:, -1], atol=1e-6))
print(
    F.scaled_dot_product_attention(x, x, x, is_causal=True).shape, nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()(x).shape
)
