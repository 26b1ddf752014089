"""diffusers: a tiny UNet learns to take away noise, then DDPM, DDIM and DPM++ draw pictures with it; an autoencoder beside it."""

import tempfile

import torch
from diffusers import AutoencoderKL, DDIMPipeline, DDIMScheduler, DDPMScheduler, DPMSolverMultistepScheduler, UNet2DModel
from diffusers.training_utils import EMAModel

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8, attention_head_dim=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)  # fmt: skip
scheduler = DDPMScheduler(num_train_timesteps=50)
optimizer, average = torch.optim.AdamW(model.parameters(), lr=1e-3), EMAModel(model.parameters(), decay=0.9)
pictures = torch.randn(4, 1, 8, 8).clamp(-1, 1)
for _ in range(6):
    noise, times = torch.randn_like(pictures), torch.randint(0, 50, (4,))
    loss = torch.nn.functional.mse_loss(model(scheduler.add_noise(pictures, noise, times), times).sample, noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.step(model.parameters())
    print("loss", loss.item())

model.eval()
for kind in (DDPMScheduler, DDIMScheduler, DPMSolverMultistepScheduler):
    sampler = kind(num_train_timesteps=50)
    sampler.set_timesteps(5)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, 8, 8, generator=generator)
    with torch.no_grad():
        for time in sampler.timesteps:
            options = {"generator": generator} if kind is not DPMSolverMultistepScheduler else {}
            x = sampler.step(model(x, time).sample, time, x, **options).prev_sample
    print(kind.__name__, x.mean().item(), x.std().item())

with tempfile.TemporaryDirectory() as folder:
    pipeline = DDIMPipeline(unet=model, scheduler=DDIMScheduler(num_train_timesteps=50))
    pipeline.set_progress_bar_config(disable=True)
    pipeline.save_pretrained(folder)
    again = DDIMPipeline.from_pretrained(folder)
    again.set_progress_bar_config(disable=True)
    first, second = (
        p(num_inference_steps=3, generator=torch.Generator().manual_seed(1), output_type="np").images for p in (pipeline, again)
    )
    print("pipeline", first.shape, bool((first == second).all()), float(first.mean()))

torch.manual_seed(0)
vae = AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=2, sample_size=8)
coded = vae.encode(torch.randn(1, 3, 8, 8)).latent_dist
print("autoencoder", coded.mean.mean().item(), vae.decode(coded.mode()).sample.mean().item(), coded.kl().item())
