"""Event files for TensorBoard, through the `tensorboard` package.

    with SummaryWriter("runs/first") as writer:
        writer.add_scalar("loss/train", loss, step)

The command `tensorboard --logdir runs` shows them.
"""

from __future__ import annotations

try:
    import tensorboard as _tensorboard  # noqa: F401 - asked for here, so that the message comes from here
except ModuleNotFoundError as problem:
    if problem.name != "tensorboard":
        raise
    raise ImportError("flambeau.utils.tensorboard writes through the package tensorboard: pip install 'flambeau[tensorboard]'") from None

from flambeau.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
