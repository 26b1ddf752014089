"""vector-quantize-pytorch: codebooks of five kinds inside a small autoencoder."""

import torch
from torch import nn
from vector_quantize_pytorch import FSQ, LFQ, RandomProjectionQuantizer, ResidualVQ, SimVQ, VectorQuantize

KINDS = {
    "VQ": lambda: VectorQuantize(dim=16, codebook_size=32, decay=0.8, commitment_weight=1.0),
    "VQ with k-means and cosines": lambda: VectorQuantize(dim=16, codebook_size=32, kmeans_init=True, kmeans_iters=5, use_cosine_sim=True),
    "ResidualVQ": lambda: ResidualVQ(dim=16, num_quantizers=3, codebook_size=16),
    "FSQ": lambda: FSQ(levels=[5, 4, 3], dim=16),
    "LFQ": lambda: LFQ(codebook_size=64, dim=16, entropy_loss_weight=0.1),
    "SimVQ": lambda: SimVQ(dim=16, codebook_size=32),
}
for name, make in KINDS.items():
    torch.manual_seed(0)
    encoder, quantizer, decoder = nn.Linear(8, 16), make(), nn.Linear(16, 8)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *quantizer.parameters(), *decoder.parameters()], lr=1e-2)
    x = torch.randn(4, 10, 8)
    for _ in range(5):
        quantized, indices, *losses = quantizer(encoder(x))
        loss = nn.functional.mse_loss(decoder(quantized), x) + sum(part.sum() for part in losses if torch.is_tensor(part))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(name, loss.item())
    print(name, indices.flatten()[:8].tolist())
torch.manual_seed(0)
print("projected", RandomProjectionQuantizer(dim=8, num_codebooks=2, codebook_dim=4, codebook_size=16)(x)[0, :3].tolist())
