"""lightning: ModelParallelStrategy on two processes: sharded parameters (fully_shard), cut layers (tensor parallel), files of all ranks."""

import tempfile
import warnings
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def configure_model(self):
        mesh, first, second = self.device_mesh, self.net[0], self.net[2]
        if hasattr(first, "sharded"):
            return
        first.sharded = True
        if mesh["tensor_parallel"].size() > 1:
            parallelize_module(self.net, mesh["tensor_parallel"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        if mesh["data_parallel"].size() > 1:
            for layer in (first, second, self.net):
                fully_shard(layer, mesh=mesh["data_parallel"])

    def training_step(self, batch, index):
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def test_step(self, batch, index):
        self.log("test", nn.functional.l1_loss(self.net(batch[0]), batch[1]), sync_dist=True)

    def on_train_epoch_end(self):
        kinds = [type(parameter).__name__ for parameter in self.parameters()]
        if self.trainer.is_global_zero:
            print(self.current_epoch, self.trainer.callback_metrics["loss_epoch"].item(), kinds, flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def loader(size, seed):
    x = torch.randn(size, 4, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True).sin()), batch_size=8, shuffle=seed == 1)


def trainer(sharded, folder, **options):
    strategy = ModelParallelStrategy(data_parallel_size=sharded, tensor_parallel_size=2 // sharded)
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder)
    return L.Trainer(accelerator="cpu", devices=2, strategy=strategy, **quiet, **options)


for sharded in (2, 1):
    with tempfile.TemporaryDirectory() as folder:
        L.seed_everything(0, verbose=False)
        kept = ModelCheckpoint(dirpath=folder, save_last=True)
        first, model = trainer(sharded, folder, max_epochs=3, callbacks=[kept]), Line()
        say = print if first.is_global_zero else lambda *words: None
        first.fit(model, loader(64, 1))
        say("test", first.test(model, loader(32, 2), verbose=False))
        say("files", sorted(path.suffix or path.name for path in Path(kept.last_model_path).iterdir()))
        further = trainer(sharded, folder, max_epochs=5, enable_checkpointing=False)
        further.fit(Line(), loader(64, 1), ckpt_path=kept.last_model_path)
        further.strategy.barrier()  # the files are read by both ranks
