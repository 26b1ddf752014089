"""Train a small network with all that a real run needs, in one file: copy it, and make it yours.

    flambeau train                        an MLP on 10,000 images of handwritten digits, which come with the package
    flambeau train fashion --data DIR     the same on Fashion-MNIST; --model cnn for a convolutional network
    flambeau train shakespeare            a small GPT that learns to write, character by character (then: flambeau sample)

Everything a run leaves behind is in one folder (runs/mnist, ...): the best and the last checkpoint, the curves, event files for TensorBoard.
Ctrl-C saves and says how to go on. `--resume` continues exactly where the run stopped, to the bit: weights, optimizer, schedule, random
numbers and the place in the epoch are all in the checkpoint.

Nothing here is special to Flambeau: where PyTorch is installed, `python train.py` does the same.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import math
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset, TensorDataset
from tqdm import tqdm

HERE = Path(__file__).resolve().parent / "data"
COMMAND = "flambeau train" if "flambeau" in sys.modules else f"python {sys.argv[0]}"

# What differs from task to task; the command line can change any of it.
DEFAULTS = {
    "mnist": dict(model="mlp", epochs=15, batch_size=64, lr=3e-3, weight_decay=1e-2, warmup=100, clip=1.0, patience=5),
    "fashion": dict(model="mlp", epochs=10, batch_size=64, lr=1e-3, weight_decay=1e-2, warmup=200, clip=1.0, patience=4),
    "shakespeare": dict(model="gpt", epochs=10, batch_size=32, lr=1e-3, weight_decay=1e-1, warmup=100, clip=1.0, patience=5),
}


# -- models ------------------------------------------------------------------------------------------------------------


class MLP(nn.Sequential):
    """784 - 256 - 128 - 10, with dropout."""

    def __init__(self, dropout: float = 0.2):
        super().__init__(
            nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Dropout(dropout), nn.Linear(256, 128), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(128, 10),
        )  # fmt: skip


class CNN(nn.Sequential):
    """Two convolutions with pooling, two linear layers."""

    def __init__(self, dropout: float = 0.25):
        super().__init__(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(dropout), nn.Linear(128, 10),
        )  # fmt: skip


class Block(nn.Module):
    """Attention, then a small MLP; both read a normalised copy of the stream and add to it."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)), self.dropout, self.training)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A decoder over characters: (batch, length) of codes -> (batch, length, characters) of logits for the next one."""

    def __init__(self, characters: str, block: int = 64, width: int = 128, heads: int = 4, layers: int = 4, dropout: float = 0.1):
        super().__init__()
        self.characters, self.block = characters, block
        self.tokens, self.positions = nn.Embedding(len(characters), width), nn.Embedding(block, width)
        self.blocks = nn.Sequential(*[Block(width, heads, dropout) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(characters))

    def forward(self, codes):
        x = self.tokens(codes) + self.positions(torch.arange(codes.shape[1], device=codes.device))
        return self.head(self.norm(self.blocks(x)))

    @torch.no_grad()
    def write(self, start: str, count: int, temperature: float = 0.8) -> str:
        """`start`, and `count` characters more, drawn one by one."""
        device = self.head.weight.device
        codes = torch.tensor([[self.characters.index(c) for c in start if c in self.characters] or [0]], device=device)
        for _ in range(count):
            logits = self(codes[:, -self.block :])[:, -1] / temperature
            codes = torch.cat([codes, torch.multinomial(torch.softmax(logits, -1), 1)], 1)
        return "".join(self.characters[i] for i in codes[0].tolist())


# -- data --------------------------------------------------------------------------------------------------------------


def contents(path: Path) -> bytes:
    """What is in a file, packed or not."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return file.read()


def read_idx(path: Path) -> torch.Tensor:
    """A file in MNIST's format: two zeros, the type (8: bytes), the number of dimensions, their sizes, then the bytes."""
    raw = contents(path)
    sizes = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    if raw[:3] != b"\0\0\x08" or len(raw) != 4 + 4 * len(sizes) + math.prod(sizes):
        raise ValueError(f"{path} is no whole idx file of bytes; fetch it again")
    return torch.frombuffer(bytearray(raw[4 + 4 * len(sizes) :]), dtype=torch.uint8).reshape(sizes)


def find_idx(folder: Path, name: str) -> Path | None:
    """An idx file, packed or not, in `folder` or where torchvision puts such files."""
    places = itertools.product((folder, folder / "raw", *folder.glob("*/raw")), (f"{name}.gz", name))
    return next((place / file for place, file in places if (place / file).exists()), None)


def images(args, part: str) -> TensorDataset:
    """Images (N, 1, 28, 28) from 0 to 1, and their classes (N,)."""
    folder = Path(args.data) if args.data else HERE / "mnist" if args.task == "mnist" else Path("data")
    files = [f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"]
    if any(find_idx(folder, name) is None for name in files) and args.task == "fashion":
        from torchvision.datasets import FashionMNIST

        FashionMNIST(folder, train=part == "train", download=True)
    found = [find_idx(folder, name) for name in files]
    if None in found:
        sys.exit(f"There is no {files[found.index(None)]}(.gz) in {folder}. Give the folder that has the four idx files with --data.")
    pixels, labels = map(read_idx, found)
    return TensorDataset(pixels[:, None].float() / 255, labels.long())


class Windows(Dataset):
    """Every stretch of `block` characters of a text, and the same one character further on."""

    def __init__(self, codes: torch.Tensor, block: int):
        self.codes, self.block = codes, block

    def __len__(self) -> int:
        return len(self.codes) - self.block

    def __getitem__(self, i: int):
        piece = self.codes[i : i + self.block + 1]
        return piece[:-1], piece[1:]


def shifted(x: torch.Tensor) -> torch.Tensor:
    """Each image moved by up to two pixels: digits are the same digits elsewhere, and a network that saw them there knows it."""
    windows = F.pad(x[:, 0], (2, 2, 2, 2)).unfold(1, 28, 1).unfold(2, 28, 1)  # (N, 5, 5, 28, 28), without a copy
    down, right = torch.randint(5, (2, len(x)), device=x.device)
    return windows[torch.arange(len(x), device=x.device), down, right][:, None]


def make_data(args, generator: torch.Generator) -> tuple:
    """(loader of training batches, loader of validation batches, what is done to training inputs, the model)."""
    options = dict(batch_size=args.batch_size, num_workers=args.workers, pin_memory=args.device.startswith("cuda"))
    return (text_data if args.task == "shakespeare" else image_data)(args, generator, options)


def image_data(args, generator: torch.Generator, options: dict) -> tuple:
    loader = DataLoader(images(args, "train"), shuffle=True, generator=generator, drop_last=True, **options)
    augment = shifted if args.task == "mnist" else None
    return loader, DataLoader(images(args, "t10k"), **options), augment, MLP() if args.model == "mlp" else CNN()


def text_data(args, generator: torch.Generator, options: dict) -> tuple:
    text = contents(Path(args.data) if args.data else HERE / "shakespeare.txt.gz").decode()
    characters = "".join(sorted(set(text)))
    code = {c: i for i, c in enumerate(characters)}
    codes, model = torch.tensor([code[c] for c in text]), GPT(characters)
    cut = len(codes) * 9 // 10
    train, valid = Windows(codes[:cut], model.block), Windows(codes[cut:], model.block)
    sampler = RandomSampler(train, replacement=True, num_samples=200 * args.batch_size, generator=generator)  # an epoch is 200 batches
    some = range(0, len(valid), max(len(valid) // (20 * args.batch_size), 1))  # for validation, 20
    return DataLoader(train, sampler=sampler, **options), DataLoader(Subset(valid, some), **options), None, model


# -- training ----------------------------------------------------------------------------------------------------------


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Matrices are pulled towards zero; biases, norms and embeddings are not."""
    plain = {id(p) for m in model.modules() if isinstance(m, (nn.LayerNorm, nn.BatchNorm2d, nn.Embedding)) for p in m.parameters()}
    decayed = [p for p in model.parameters() if p.ndim > 1 and id(p) not in plain]
    others = [p for p in model.parameters() if p.ndim <= 1 or id(p) in plain]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def warmup_then_cosine(optimizer, warmup: int, total: int):
    """The learning rate rises in a straight line, then falls along half a cosine to a hundredth."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        done = (step - warmup) / max(total - warmup, 1)
        return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(done, 1)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, int]:
    """(mean cross entropy, how many of the targets were the best guess)."""
    logits = model(x)
    loss = F.cross_entropy(logits.flatten(0, -2), y.flatten())
    return loss, int((logits.argmax(-1) == y).sum())


@torch.inference_mode()
def evaluate(model: nn.Module, loader: DataLoader, device: str) -> tuple[float, float]:
    """(mean loss, accuracy)."""
    model.eval()
    total = right = count = 0
    for x, y in loader:
        loss, good = loss_of(model, x.to(device), y.to(device))
        total, right, count = total + loss.item() * y.numel(), right + good, count + y.numel()
    model.train()
    return total / count, right / count


def event_files(folder: Path):
    """Where TensorBoard will find the numbers of the run; None where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))


class Run:
    """A run: what it trains, how far it has come, and where it leaves what it made."""

    def __init__(self, args):
        self.args, self.folder = args, Path(args.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(args.seed)
        self.generator = torch.Generator()
        self.loader, self.valid, self.augment, self.model = make_data(args, self.generator)
        self.model.to(args.device)
        self.optimizer = torch.optim.AdamW(parameter_groups(self.model, args.weight_decay), lr=args.lr, betas=(0.9, 0.95))
        self.schedule = warmup_then_cosine(self.optimizer, args.warmup, args.epochs * len(self.loader))
        self.epoch = self.batch = 0  # the next batch to be trained on
        self.sums = [0.0, 0, 0]  # of this epoch so far: loss, right answers, all answers
        self.history: list[dict] = []
        self.best, self.bad_epochs = math.inf, 0
        self.interrupted = False
        self.writer = event_files(self.folder)

    def state(self) -> dict:
        """Everything that decides how the run goes on. Plain data and tensors, so that loading it can run no code."""
        return {
            "args": vars(self.args), "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(), "epoch": self.epoch, "batch": self.batch, "sums": self.sums, "history": self.history,
            "best": self.best, "bad_epochs": self.bad_epochs, "characters": getattr(self.model, "characters", None),
            "random": {"torch": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all(), "python": random.getstate(),
                       "numpy": [v.tolist() if isinstance(v, np.ndarray) else v for v in np.random.get_state()]},
        }  # fmt: skip

    def load(self, state: dict) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.epoch, self.batch, self.sums, self.history = state["epoch"], state["batch"], state["sums"], state["history"]
        self.best, self.bad_epochs = state["best"], state["bad_epochs"]
        torch.set_rng_state(state["random"]["torch"])
        torch.cuda.set_rng_state_all(state["random"]["cuda"])
        random.setstate(state["random"]["python"])
        np.random.set_state(tuple(state["random"]["numpy"]))

    def train(self) -> None:
        args = self.args
        signal.signal(signal.SIGINT, self.interrupt)
        while self.epoch < args.epochs and self.bad_epochs < args.patience:
            self.train_epoch()
            loss, accuracy = evaluate(self.model, self.valid, args.device)
            self.finish_epoch(loss, accuracy)
        if self.bad_epochs >= args.patience:
            print(f"stopped early: no better for {self.bad_epochs} epochs")

    def interrupt(self, number: int, frame) -> None:
        """Ctrl-C: finish the batch first, so that what is saved is the state between two batches. A second one stops at once."""
        self.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def train_epoch(self) -> None:
        """One pass over the data, from the batch on where the run stands."""
        args, model = self.args, self.model
        self.generator.manual_seed(args.seed + self.epoch)  # so that an epoch can be entered in its middle: same seed, same order
        batches = itertools.islice(self.loader, self.batch, None)
        started, seen = time.perf_counter(), 0
        title = f"epoch {self.epoch + 1:2}/{args.epochs}"
        bar = tqdm(batches, title, len(self.loader), initial=self.batch, leave=False, disable=not sys.stderr.isatty(), unit="batch")
        for x, y in bar:
            x, y = x.to(args.device, non_blocking=True), y.to(args.device, non_blocking=True)
            loss, right = loss_of(model, x if self.augment is None else self.augment(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            self.optimizer.step()
            self.schedule.step()
            self.batch += 1
            seen += len(x)
            self.sums = [self.sums[0] + loss.item() * y.numel(), self.sums[1] + right, self.sums[2] + y.numel()]
            if not bar.disable and self.batch % 10 == 0:
                mean, share = self.sums[0] / self.sums[2], self.sums[1] / self.sums[2]
                bar.set_postfix_str(
                    f"loss {mean:.4f}, accuracy {share:6.2%}, {seen / (time.perf_counter() - started):,.0f} samples/s", False
                )
            if self.interrupted:
                bar.close()
                raise KeyboardInterrupt
        self.speed = seen / (time.perf_counter() - started)

    def finish_epoch(self, valid_loss: float, valid_accuracy: float) -> None:
        """Note how the epoch went, tell, and save."""
        loss, right, count = self.sums
        row = {"epoch": self.epoch + 1, "loss": loss / count, "accuracy": right / count, "valid loss": valid_loss,
               "valid accuracy": valid_accuracy, "lr": self.optimizer.param_groups[0]["lr"]}  # fmt: skip
        self.history.append(row)
        self.epoch, self.batch, self.sums = self.epoch + 1, 0, [0.0, 0, 0]
        better = valid_loss < self.best
        self.best, self.bad_epochs = min(self.best, valid_loss), 0 if better else self.bad_epochs + 1
        torch.save(self.state(), self.folder / "last.pt")
        if better:
            torch.save(self.state(), self.folder / "best.pt")
        for name, value in row.items() if self.writer else ():
            self.writer.add_scalar(name.replace(" ", "/"), value, row["epoch"])
        print(
            f"epoch {row['epoch']:2}/{self.args.epochs}   loss {row['loss']:.4f}   accuracy {row['accuracy']:6.2%}   "
            f"validation loss {valid_loss:.4f}   accuracy {valid_accuracy:6.2%}   {self.speed:8,.0f} samples/s{'   *' if better else ''}",
            flush=True,
        )

    def plot(self) -> Path | None:
        """The curves as a picture, where matplotlib is installed."""
        try:
            import matplotlib
        except ImportError:
            return None
        matplotlib.use("Agg")
        from matplotlib import pyplot

        epochs = [row["epoch"] for row in self.history]
        figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
        for axis, what, label in zip(axes, ("loss", "accuracy"), ("cross entropy", "share of right answers"), strict=True):
            axis.plot(epochs, [row[what] for row in self.history], "o-", markersize=3, label="training")
            axis.plot(epochs, [row[f"valid {what}"] for row in self.history], "o-", markersize=3, label="validation")
            axis.set(xlabel="epoch", ylabel=label, title=f"{self.args.task}, {self.args.model}: {what}")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.grid(alpha=0.3)
            axis.legend()
        figure.savefig(self.folder / "curves.png", dpi=120)
        return self.folder / "curves.png"


# -- the command -------------------------------------------------------------------------------------------------------


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=COMMAND.removeprefix("python "), description=__doc__, formatter_class=shown)
    add = parser.add_argument
    add("task", nargs="?", choices=DEFAULTS, default="mnist", help="what to learn (mnist)")
    add("--data", metavar="PATH", help="folder of the four idx files, or a text file")
    add("--model", choices=("mlp", "cnn"), help="for images (mlp)")
    for name, kind, meaning in (
        ("epochs", int, "passes over the data"), ("batch-size", int, "samples to a step"), ("lr", float, "the highest learning rate"),
        ("weight-decay", float, "pull of matrices towards zero"), ("warmup", int, "steps until the learning rate is reached"),
        ("clip", float, "longest gradient"), ("patience", int, "epochs without a better validation loss until it stops"),
    ):  # fmt: skip
        add(f"--{name}", type=kind, metavar="N", help=meaning)
    add("--seed", type=int, default=0, metavar="N", help="of all random numbers (0)")
    add("--workers", type=int, default=0, metavar="N", help="processes that load data (0)")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    add("--out", metavar="DIR", help="where the run is kept (runs/TASK)")
    add("--resume", metavar="FILE", help="continue the run of this checkpoint; other options are then those it had")
    args = parser.parse_args(argv)
    for name, value in DEFAULTS[args.task].items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)
    args.out = args.out or os.path.join("runs", args.task)
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    state = None
    if args.resume:
        state = torch.load(args.resume, map_location="cpu", weights_only=True)
        args = argparse.Namespace(**(state["args"] | {"resume": args.resume, "device": args.device}))
    run = Run(args)
    if state is not None:
        run.load(state)
        print(f"resumed {args.resume}: epoch {run.epoch + 1}, batch {run.batch + 1} of {len(run.loader)}")
    count = sum(p.numel() for p in run.model.parameters())
    framework = f"torch {torch.__version__}, {torch.get_num_threads()} threads" if args.device == "cpu" else args.device
    print(
        f"{args.task}: {args.model.upper()} with {count:,} parameters, {len(run.loader)} batches of {args.batch_size} per epoch ({framework})"
    )
    started = time.perf_counter()
    try:
        run.train()
    except KeyboardInterrupt:
        last = run.folder / "last.pt"
        torch.save(run.state(), last)
        print(f"\ninterrupted in epoch {run.epoch + 1}, after batch {run.batch}. To go on from there:\n  {COMMAND} --resume {last}")
        return 130
    finally:
        if run.writer:
            run.writer.close()
    best = min(run.history, key=lambda row: row["valid loss"])
    print(f"best: validation loss {best['valid loss']:.4f}, accuracy {best['valid accuracy']:.2%} after epoch {best['epoch']}; "
          f"{time.perf_counter() - started:.1f} s in all")  # fmt: skip
    picture = run.plot()
    print(f"saved: {run.folder / 'best.pt'}, {run.folder / 'last.pt'}" + (f", {picture}" if picture else ""))
    if args.task == "shakespeare":
        run.model.eval()
        print("\n" + run.model.write("\n", 300))
    return 0


if __name__ == "__main__":
    sys.exit(main())
