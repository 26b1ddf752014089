"""lightning: a LightningModule with a DataModule: Trainer.fit with callbacks and a checkpoint, then test, predict, and going on from the file."""

import tempfile
import warnings

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

warnings.filterwarnings("ignore")


class Fit(L.LightningModule):
    def __init__(self, width=32, rate=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))

    def training_step(self, batch, index):
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val", nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def test_step(self, batch, index):
        self.log("test", nn.functional.l1_loss(self.net(batch[0]), batch[1]))

    def predict_step(self, batch, index):
        return self.net(batch[0])

    def on_train_epoch_end(self):
        print(
            f"epoch {self.current_epoch} loss {self.trainer.callback_metrics['loss'].item()} val {self.trainer.callback_metrics['val'].item()}"
        )

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)}


class Sums(L.LightningDataModule):
    def setup(self, stage):
        x = torch.randn(192, 4, generator=torch.Generator().manual_seed(7))
        data = TensorDataset(x, x.sum(1, keepdim=True).sin())
        self.train, self.val = random_split(data, [128, 64], generator=torch.Generator().manual_seed(8))

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=16, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=32)

    test_dataloader = predict_dataloader = val_dataloader


L.seed_everything(0, verbose=False)
with tempfile.TemporaryDirectory() as folder:
    quiet = dict(
        accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        gradient_clip_val=1.0,
    )  # fmt: skip
    best = ModelCheckpoint(dirpath=folder, monitor="val", save_last=True)
    model, data = Fit(), Sums()
    trainer = L.Trainer(max_epochs=4, callbacks=[best, EarlyStopping("val", patience=3)], **quiet)
    trainer.fit(model, data)
    print("best", best.best_model_score.item())
    print("test", trainer.test(model, data, verbose=False))
    print("predicted", torch.cat(trainer.predict(model, data)).sum().item())
    again = Fit.load_from_checkpoint(best.last_model_path)
    print("again", again.hparams.width, all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)))
    further = L.Trainer(max_epochs=6, **quiet)
    further.fit(again, data, ckpt_path=best.last_model_path)
    print("steps", further.global_step)
