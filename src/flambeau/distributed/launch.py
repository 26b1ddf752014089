"""torch.distributed.launch: the launcher of older programs, which learn their number on this machine from an argument, --local-rank."""

from __future__ import annotations

import sys
import warnings
from argparse import Namespace

from flambeau.distributed import run as launcher
from flambeau.distributed.launcher.options import get_args_parser

__all__ = ["launch", "main", "parse_args"]


def parse_args(args: list[str] | None) -> Namespace:
    """What the arguments say."""
    parser = get_args_parser()
    parser.add_argument("--use-env", "--use_env", action="store_true", help="Do not pass --local-rank: the program reads LOCAL_RANK.")
    return parser.parse_args(args)


def launch(args: Namespace) -> None:
    """Run what parsed arguments ask for."""
    if args.no_python and not args.use_env:
        raise ValueError("--no_python needs --use_env: a program that is not Python's gets no --local-rank")
    launcher.run(args)


def main(args: list[str] | None = None) -> None:
    """Parse the arguments (those of this process, without any) and run."""
    warnings.warn(
        "torch.distributed.launch is deprecated: use torchrun, or `flambeau run --nproc_per_node=...`. They pass no --local-rank; "
        "a program finds its number in os.environ['LOCAL_RANK']",
        FutureWarning,
        stacklevel=2,
    )
    launch(parse_args(args))


if __name__ == "__main__":
    sys.exit(launcher.reported(main))
