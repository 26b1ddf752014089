"""lightning: Trainer(devices=2, strategy="ddp") starts this program once more: its sampler, logged averages, metrics and files of two ranks."""

import tempfile
import warnings
from pathlib import Path

import lightning as L
import torch
import torchmetrics
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class Classes(L.LightningModule):
    def __init__(self, rate=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(4, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)

    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        self.log("rows", float(len(batch[0])), reduce_fx="sum", on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, index):
        scores = self.net(batch[0])
        self.accuracy(scores, batch[1])
        self.log("accuracy", self.accuracy, on_epoch=True)
        self.log("val", nn.functional.cross_entropy(scores, batch[1]), sync_dist=True)

    def test_step(self, batch, index):
        self.log("test", nn.functional.cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)

    def predict_step(self, batch, index):
        return self.all_gather(self.net(batch[0])).argmax(-1)  # (ranks, rows)

    def on_train_epoch_end(self):
        seen = self.trainer.callback_metrics
        if self.trainer.is_global_zero:
            print(self.current_epoch, {name: seen[name].item() for name in ("loss_epoch", "rows", "val", "accuracy")}, flush=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)}


def loader(size, seed, shuffle=False):
    x = torch.randn(size, 4, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8, shuffle=shuffle)


L.seed_everything(0, verbose=False)
with tempfile.TemporaryDirectory() as folder:
    quiet = dict(
        accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=folder, gradient_clip_val=1.0,
    )  # fmt: skip
    best = ModelCheckpoint(dirpath=folder, monitor="val", save_last=True)
    model = Classes()
    trainer = L.Trainer(max_epochs=4, accumulate_grad_batches=2, callbacks=[best, EarlyStopping("val", patience=3)], **quiet)
    say = print if trainer.is_global_zero else lambda *words: None
    trainer.fit(model, loader(127, 7, shuffle=True), loader(45, 8))
    sampler = trainer.train_dataloader.sampler
    say(type(trainer.strategy).__name__, type(trainer.model).__name__, type(sampler).__name__, sampler.num_replicas, sampler.shuffle)
    say("ranks agree", [bool((trainer.strategy.all_gather(p) == p).all()) for p in model.parameters()])
    say("best", best.best_model_score.item(), sorted(path.name for path in Path(best.dirpath).iterdir()))
    say("validate", trainer.validate(model, loader(45, 8), verbose=False))
    say("test", trainer.test(model, loader(30, 9), ckpt_path="best", verbose=False))
    say("predicted", [classes.tolist() for classes in trainer.predict(model, loader(32, 10))])

    again = Classes()
    further = L.Trainer(max_epochs=6, **quiet)
    further.fit(again, loader(127, 7, shuffle=True), loader(45, 8), ckpt_path=best.last_model_path)
    say("steps", further.global_step, again.trainer.callback_metrics["loss_epoch"].item())
    further.strategy.barrier()  # the files are read by both ranks
