"""torch.distributed.run: start a program as several processes that train together. What `torchrun` runs, and `flambeau run --nproc_per_node=2`.

    flambeau run --nproc_per_node=2 train.py --epochs 3
    flambeau run --nnodes=2 --node_rank=1 --master_addr=10.0.0.1 --nproc_per_node=4 train.py
    flambeau run --nnodes=1:4 --rdzv_backend=c10d --rdzv_endpoint=node1:29400 --max_restarts=3 train.py

Workers find out who they are from RANK, LOCAL_RANK, WORLD_SIZE, ... and where the others are from MASTER_ADDR and MASTER_PORT.
"""

from __future__ import annotations

import logging
import os
import sys
import uuid
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs, SignalException, Std
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from flambeau.distributed.elastic.rendezvous.api import RendezvousError
from flambeau.distributed.elastic.rendezvous.utils import _parse_rendezvous_config
from flambeau.distributed.elastic.utils.api import macros
from flambeau.distributed.launcher.api import LaunchConfig, elastic_launch
from flambeau.distributed.launcher.options import get_args_parser

__all__ = ["command", "config_from_args", "get_args_parser", "main", "parse_args", "run", "run_with_python_options"]
log = logging.getLogger(__name__)

PORT = 29500


@record
def main(args: list[str] | None = None) -> None:
    """Parse the arguments (those of this process, without any) and run. ChildFailedError if a worker failed."""
    run(parse_args(args))


@record
def run_with_python_options(args: list[str], options: Sequence[str]) -> None:
    """`main`, with options (-X dev, -W error) for the Python of every worker."""
    parsed = parse_args(args)
    parsed.python_options = options
    run(parsed)


def command() -> int:
    """The same as a command: its exit status."""
    return reported(main)


def reported(launch: Callable[[], None]) -> int:
    """The exit status of a launch, after a report instead of a traceback through the launcher."""
    try:
        launch()
    except ChildFailedError as problem:
        sys.stdout.flush()
        print(problem, file=sys.stderr, flush=True)
    except SignalException as told:
        print(f"{told.sigval.name}: all workers have been ended", file=sys.stderr, flush=True)
    except (NotImplementedError, RendezvousError) as problem:
        print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
    except OSError as problem:
        if problem.filename is None:
            raise
        print(f"{problem.filename} cannot be started: {problem.strerror}", file=sys.stderr, flush=True)
    else:
        return 0
    return 1


def run(args: Namespace) -> None:
    """Run what parsed arguments ask for."""
    if not args.standalone and _is_alone(args):
        args.standalone = True
    if args.standalone:
        args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id = "c10d", "localhost:0", str(uuid.uuid4())
    config, program, program_args = config_from_args(args)
    elastic_launch(config=config, entrypoint=program)(*program_args)


def _is_alone(args: Namespace) -> bool:
    """Whether this is the only machine, and nobody said where it keeps the store."""
    no_place = args.master_port is None and not args.rdzv_endpoint
    return args.rdzv_backend == "static" and parse_min_max_nnodes(args.nnodes) == (1, 1) and no_place


def parse_args(args: list[str] | None) -> Namespace:
    """What the arguments say."""
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """The fewest and the most machines.

    >>> parse_min_max_nnodes("2"), parse_min_max_nnodes("1:4")
    ((2, 2), (1, 4))
    """
    numbers = nnodes.split(":")
    if len(numbers) > 2:
        raise RuntimeError(f"--nnodes={nnodes} must be a number, or the fewest and the most in the format MIN:MAX")
    return int(numbers[0]), int(numbers[-1])


def determine_local_world_size(nproc_per_node: str) -> int:
    """How many workers on this machine: a number, or what stands for one."""
    try:
        return int(nproc_per_node)
    except ValueError:
        pass
    if nproc_per_node not in ("auto", "cpu", "gpu"):
        raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node}. It must be a number, auto, cpu or gpu") from None
    from flambeau import cuda

    if nproc_per_node == "gpu" and not cuda.is_available():
        raise ValueError("--nproc_per_node=gpu, but Cuda is not available: use cpu, or a number")
    if nproc_per_node != "cpu" and cuda.is_available():
        return cuda.device_count()
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_rdzv_endpoint(args: Namespace) -> str:
    """Where machines meet: for the static backend, at the address of machine 0."""
    if args.rdzv_backend == "static" and not args.rdzv_endpoint:
        return f"{args.master_addr}:{PORT if args.master_port is None else args.master_port}"
    if args.rdzv_backend == "c10d" and not args.rdzv_endpoint and parse_min_max_nnodes(args.nnodes) == (1, 1):
        return "localhost:0"
    return args.rdzv_endpoint


def get_use_env(args: Namespace) -> bool:
    """Whether workers learn their local rank from LOCAL_RANK alone; torch.distributed.launch also passes --local-rank."""
    return getattr(args, "use_env", True)


def config_from_args(args: Namespace) -> tuple[LaunchConfig, Callable | str, list[str]]:
    """(how to launch, what, with which arguments) for parsed arguments."""
    min_nodes, max_nodes = parse_min_max_nnodes(args.nnodes)
    if not 0 < min_nodes <= max_nodes:
        raise AssertionError(f"min_nodes must be > 0 and <= max_nodes, got {min_nodes=}, {max_nodes=}")
    if args.max_restarts < 0:
        raise AssertionError("max_restarts must be >= 0")
    if args.numa_binding is not None:
        raise NotImplementedError("--numa_binding: workers are not bound to processors. Start them with numactl: --no_python numactl ...")
    count = determine_local_world_size(args.nproc_per_node)
    _threads(count)
    meeting: dict[str, Any] = dict(_parse_rendezvous_config(args.rdzv_conf))
    if args.rdzv_backend == "static":
        meeting["rank"] = args.node_rank
    config = LaunchConfig(
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        nproc_per_node=count,
        run_id=args.rdzv_id,
        role=args.role,
        rdzv_endpoint=get_rdzv_endpoint(args),
        rdzv_backend=args.rdzv_backend,
        rdzv_configs=meeting,
        max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval,
        start_method=args.start_method,
        log_line_prefix_template=os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
        local_addr=args.local_addr,
        event_log_handler=args.event_log_handler,
        logs_specs=_logs_specs(args),
        signals_to_handle=args.signals_to_handle,
        duplicate_stdout_filters=args.duplicate_stdout_filters,
        duplicate_stderr_filters=args.duplicate_stderr_filters,
        virtual_local_rank=args.virtual_local_rank,
        shutdown_timeout=args.shutdown_timeout,
    )
    return config, *_program(args)


def _program(args: Namespace) -> tuple[Callable | str, list[str]]:
    """What each worker runs."""
    with_python = not args.no_python
    if args.run_path:
        return run_script_path, [args.training_script, *args.training_script_args]
    if args.module and not with_python:
        raise ValueError("Don't use both the '--no_python' flag and the '--module' flag at the same time: a module needs Python")
    words = [args.training_script]
    if with_python:
        words = [*getattr(args, "python_options", ()), "-u", *(["-m"] if args.module else []), args.training_script]
    if not get_use_env(args):
        words.append(f"--local-rank={macros.local_rank}")
    words += args.training_script_args
    return (os.environ.get("PYTHON_EXEC", sys.executable), words) if with_python else (words[0], words[1:])


def _threads(count: int) -> None:
    """Several workers of one machine share its processors: unless told otherwise each computes with one thread, as under torchrun."""
    if "OMP_NUM_THREADS" in os.environ or count < 2:
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    share = max((os.cpu_count() or 1) // count, 1)
    advice = f" This machine has a share of {share} for each: OMP_NUM_THREADS={share} may be faster." if share > 1 else ""
    log.warning("OMP_NUM_THREADS is not set, so each of the %d workers computes with 1 thread.%s", count, advice)


def _logs_specs(args: Namespace) -> LogsSpecs:
    ranks: set[int] | None = None
    if args.local_ranks_filter:
        try:
            ranks = {int(rank) for rank in args.local_ranks_filter.split(",")}
        except ValueError:
            raise ValueError(
                f"--local_ranks_filter must be numbers with commas between them, as in 0,1, not {args.local_ranks_filter!r}"
            ) from None
    kind = DefaultLogsSpecs if args.logs_specs is None else _get_logs_specs_class(args.logs_specs)
    return kind(log_dir=args.log_dir, redirects=Std.from_str(args.redirects), tee=Std.from_str(args.tee), local_ranks_filter=ranks)


def _get_logs_specs_class(logs_specs_name: str | None) -> type[LogsSpecs]:
    """The class behind an entry point of the group torchrun.logs_specs."""
    if logs_specs_name is None:
        return DefaultLogsSpecs
    from importlib.metadata import entry_points

    found = list(entry_points(group="torchrun.logs_specs", name=logs_specs_name))
    if not found:
        raise ValueError(
            f"--logs_specs={logs_specs_name}: no installed package has an entry point of that name in the group torchrun.logs_specs"
        )
    return found[0].load()


def run_script_path(training_script: str, *training_script_args: str) -> None:
    """Run a script in this process, as its program (--run_path)."""
    import runpy

    sys.argv = [training_script, *training_script_args]
    runpy.run_path(training_script, run_name="__main__")


if __name__ == "__main__":
    sys.exit(command())
