"""x-transformers: a small language model with rotary embeddings, flash attention, gated feed-forward layers; training and generating."""

import torch
from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper, ViTransformerWrapper

VARIANTS = {
    "plain": {},
    "rotary, RMSNorm, SwiGLU": dict(rotary_pos_emb=True, use_rmsnorm=True, ff_glu=True, ff_swish=True),
    "ALiBi, one key head, flash": dict(alibi_pos_bias=True, attn_one_kv_head=True, attn_flash=True),
    "relative positions, sandwich norm": dict(rel_pos_bias=True, sandwich_norm=True, attn_pre_talking_heads=True),
}
for name, options in VARIANTS.items():
    torch.manual_seed(0)
    model = AutoregressiveWrapper(
        TransformerWrapper(num_tokens=32, max_seq_len=24, attn_layers=Decoder(dim=32, depth=2, heads=4, **options))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    tokens = torch.arange(24).repeat(4, 1) * torch.tensor([[1], [2], [3], [5]]) % 32
    for _ in range(6):
        loss = model(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        print(name, loss.item())
    model.eval()
    print(name, model.generate(tokens[:2, :6], 8, temperature=0.0).tolist())

torch.manual_seed(0)
vision = ViTransformerWrapper(image_size=16, patch_size=4, num_classes=5, attn_layers=Encoder(dim=32, depth=2, heads=4))
print("vision", vision(torch.randn(2, 3, 16, 16))[0].tolist())
