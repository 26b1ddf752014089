"""lightning: the strategies that start two processes of a function: ddp_fork, as in notebooks, and ddp_spawn; what they learned comes back."""

import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))

    def training_step(self, batch, index):
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val", nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def loader(size, seed):
    x = torch.randn(size, 4, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True).sin()), batch_size=8, shuffle=seed == 7)


def fit(strategy):
    L.seed_everything(0, verbose=False)
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    trainer = L.Trainer(accelerator="cpu", devices=2, strategy=strategy, max_epochs=3, **quiet)
    model = Line()
    trainer.fit(model, loader(64, 7), loader(32, 8))
    print(strategy, {name: value.item() for name, value in sorted(trainer.callback_metrics.items())}, trainer.global_step)
    print("validate", trainer.validate(model, loader(32, 9), verbose=False))
    print("weights", [parameter.norm().item() for parameter in model.parameters()], flush=True)


if __name__ == "__main__":
    fit("ddp_fork")
    fit("ddp_spawn")
