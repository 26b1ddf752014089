"""Let a GPT that train.py has trained write text.

    flambeau sample runs/shakespeare/best.pt --start "ROMEO:" --count 500

Where PyTorch is installed, `python sample.py` does the same.
"""

from __future__ import annotations

import argparse
import sys

import torch
from train import GPT


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau sample" if "flambeau" in sys.modules else None, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    parser.add_argument("checkpoint", help="what train.py saved: runs/shakespeare/best.pt")
    parser.add_argument("--start", default="\n", metavar="TEXT", help="what the text begins with")
    parser.add_argument("--count", type=int, default=500, metavar="N", help="characters to write (500)")
    parser.add_argument("--temperature", type=float, default=0.8, metavar="T", help="0.1: what is likeliest, 1: as the model has it (0.8)")
    parser.add_argument("--seed", type=int, default=None, metavar="N", help="the same seed writes the same text")
    args = parser.parse_args(argv)
    state = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or not state.get("characters"):
        print(f"{args.checkpoint} holds no model that writes: train one with `flambeau train shakespeare`", file=sys.stderr)
        return 2
    if not args.temperature > 0:
        parser.error(f"--temperature must be greater than 0, found {args.temperature}")
    model = GPT(state["characters"]).eval()
    model.load_state_dict(state["model"])
    if args.seed is not None:
        torch.manual_seed(args.seed)
    print(model.write(args.start, args.count, args.temperature))
    return 0


if __name__ == "__main__":
    sys.exit(main())
