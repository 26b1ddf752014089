"""`python -m benchmarks.scaling`: training on 8 to 1,024 GPUs, simulated; or, with --check, predicted against measured on two processes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import REPOSITORY
from benchmarks.scaling import ddp, fsdp, table
from benchmarks.scaling.check import check
from benchmarks.scaling.collectives import ALL_REDUCE, lap, spread
from benchmarks.scaling.figures import GPUS, LINKS, NODE, UTILIZATION, Cluster
from benchmarks.scaling.models import MODELS
from benchmarks.scaling.picture import picture
from benchmarks.scaling.step import pace

COUNTS = [8, 16, 32, 64, 128, 256, 512, 1024]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the command line asks for."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.check:
        print("\n".join(check(_measured(options.check, parser))))
        return 0
    gpu, model = GPUS[options.gpu], MODELS[options.model]
    cluster = Cluster(gpu.link, LINKS[options.link], options.node)
    speed = pace(model, gpu, options.batch, options.utilization)
    for ranks in options.gpus:
        try:
            spread(ranks, cluster)
        except ValueError as error:
            parser.error(str(error))
    batch = speed.tokens // model.tokens
    print(f"{model.name}: {table.thousands(model.parameters)} parameters, {batch} x {model.tokens:,} tokens on each GPU")
    print(f"{gpu.name}: {gpu.peak / 1e12:g} TFLOP/s, of which {options.utilization:g} is kept up")
    print(
        f"nodes of {cluster.node}: {cluster.within.name}, {cluster.within.bandwidth / 1e9:.0f} GB/s, {cluster.within.latency * 1e6:g} µs a hop"
    )
    print(
        f"between: {cluster.between.name}, {cluster.between.bandwidth / 1e9:.3g} GB/s for each, {cluster.between.latency * 1e6:g} µs a hop"
    )
    bucket = None if options.bucket_mb is None else round(options.bucket_mb * (1 << 20))
    buckets = "of 25 MiB, the first of 1" if bucket is None else f"of {options.bucket_mb:g} MiB"
    if options.timeline:
        _timelines(options, model, cluster, speed, bucket)
        return 0
    print("", *table.collectives(options.gpus, cluster), sep="\n")
    print(f"\nDistributedDataParallel, buckets {buckets}, all_reduce by {options.all_reduce}")
    print(*table.data_parallel(options.gpus, model, gpu, cluster, speed, bucket, options.all_reduce), sep="\n")
    print(f"\nfully_shard, {options.prefetch} block{'s' * (options.prefetch != 1)} gathered ahead")
    print(*table.sharded(options.gpus, model, gpu, cluster, speed, options.prefetch), sep="\n")
    print(f"\n!  more than the {gpu.memory / 1e9:.0f} GB that a GPU has, before activations")
    return 0


def _timelines(options, model, cluster, speed, bucket) -> None:  # type: ignore[no-untyped-def]
    for ranks in options.gpus:
        steps = {
            "DistributedDataParallel": ddp.step(model.layers, speed, table.at(ALL_REDUCE[options.all_reduce], ranks, cluster), bucket),
            "fully_shard": fsdp.step(model, speed, table.at(lap, ranks, cluster), ranks, options.prefetch),
        }
        for name, step in steps.items():
            print(f"\n{name} on {ranks:,} GPUs: {1e3 * step.total:.4g} ms\n{picture(step.jobs)}")


def _measured(name: str, parser: argparse.ArgumentParser) -> Path:
    """The file of that name, or the newest there is."""
    results = REPOSITORY / "benchmarks" / "results"
    found = sorted(results.glob("distributed-cpu*.json"), key=lambda path: path.stat().st_mtime)
    if name != NEWEST and not Path(name).exists():
        parser.error(f"there is no file {name}")
    if name == NEWEST and not found:
        parser.error("nothing was measured yet: python -m benchmarks.distributed --write")
    return found[-1] if name == NEWEST else Path(name)


NEWEST = "the newest of benchmarks/results"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    add = parser.add_argument
    add("--model", choices=list(MODELS), default="7b", help="what is trained (default: %(default)s)")
    add("--gpu", choices=list(GPUS), default="h100", help="(default: %(default)s)")
    add("--link", choices=list(LINKS), default="infiniband", help="between nodes (default: %(default)s)")
    add("--node", type=int, default=NODE, help="GPUs in a node (default: %(default)s)")
    add("--gpus", type=_counts, default=COUNTS, metavar="N,N,...", help="how many (default: 8 to 1024)")
    add("--batch", type=int, help="sequences on each GPU (default: the model's)")
    add("--utilization", type=float, default=UTILIZATION, help="the part of its peak that a GPU keeps up (default: %(default)s)")
    add("--bucket-mb", type=float, help="bucket_cap_mb of DistributedDataParallel (default: 25, the first of 1)")
    add("--all-reduce", choices=list(ALL_REDUCE), default="quicker", help="(default: %(default)s)")
    add("--prefetch", type=int, default=1, help="blocks that fully_shard gathers ahead (default: %(default)s)")
    add("--timeline", action="store_true", help="draw the step instead of the tables")
    add(
        "--check",
        metavar="FILE",
        nargs="?",
        const=NEWEST,
        help=f"predict what a file of benchmarks.distributed has measured (default: {NEWEST})",
    )
    return parser


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers with commas between, as in 8,64, found {text!r}") from None
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"expected at least one GPU, found {min(counts)}")
    return counts


if __name__ == "__main__":
    sys.exit(main())
