"""The options of the launcher: torchrun's, in both spellings, with defaults from PET_... variables."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser

from flambeau.distributed.argparse_util import check_env, env
from flambeau.distributed.elastic.multiprocessing.signals import default_signals

__all__ = ["get_args_parser"]


def get_args_parser() -> ArgumentParser:
    """The parser. What follows the script belongs to the script."""
    parser = ArgumentParser(
        description="Runs a program as a group of processes that train together, watches them, and starts them again if they fail and may."
    )
    _how_many(parser)
    _meeting(parser)
    _watching(parser)
    _program(parser)
    _output(parser)
    parser.add_argument("training_script", help="The program: a script, a module (-m), or anything executable (--no_python).")
    parser.add_argument("training_script_args", nargs=REMAINDER)
    return parser


def _value(parser: ArgumentParser, name: str, help: str, *short: str, default: object = None, **how: object) -> None:
    spellings = dict.fromkeys((*short, f"--{name.replace('_', '-')}", f"--{name}"))
    parser.add_argument(*spellings, action=env, default=default, help=help, **how)  # type: ignore[arg-type]


def _switch(parser: ArgumentParser, name: str, help: str, *short: str) -> None:
    spellings = dict.fromkeys((*short, f"--{name.replace('_', '-')}", f"--{name}"))
    parser.add_argument(*spellings, action=check_env, help=help)


def _how_many(parser: ArgumentParser) -> None:
    _value(parser, "nnodes", "How many machines: a number, or the fewest and the most, as in 1:4.", default="1:1", type=str)
    _value(
        parser,
        "nproc_per_node",
        "How many workers on each: a number; gpu, cpu: one for each GPU or processor; auto: GPUs if there are any, else processors.",
        default="1",
        type=str,
    )


def _meeting(parser: ArgumentParser) -> None:
    _value(
        parser,
        "rdzv_backend",
        "How machines meet: static (numbered by --node_rank) or c10d (numbered as they come).",
        default="static",
        type=str,
    )
    _value(parser, "rdzv_endpoint", "Where they meet, as host:port. The machine that is the host keeps the store.", default="", type=str)
    _value(parser, "rdzv_id", "A name for this run, the same on all machines.", default="none", type=str)
    _value(
        parser,
        "rdzv_conf",
        "More about the meeting, as key=value,key=value: join_timeout, last_call_timeout, timeout, is_host.",
        default="",
        type=str,
    )
    _switch(parser, "standalone", "One machine: the meeting is arranged on a free port, whatever else is said about it.")
    _value(parser, "node_rank", "The number of this machine (static).", default=0, type=int)
    _value(parser, "master_addr", "The address of machine 0 (static).", default="127.0.0.1", type=str)
    _value(parser, "master_port", "The port at which machine 0 keeps the store (static). 29500 where there are several machines.", type=int)
    _value(parser, "local_addr", "The address of this machine, as the others know it.", type=str)


def _watching(parser: ArgumentParser) -> None:
    _value(parser, "max_restarts", "How often the group is started again after a failure.", default=0, type=int)
    _value(parser, "monitor_interval", "Seconds between two looks at the other machines.", default=0.1, type=float)
    _value(
        parser,
        "start_method",
        "How workers that run a function start (not used for programs).",
        default="spawn",
        type=str,
        choices=["spawn", "fork", "forkserver"],
    )
    _value(parser, "event_log_handler", "The handler of events (elastic.events) to tell how the run went.", default="null", type=str)
    _value(parser, "role", "A name for these workers, shown before their lines.", default="default", type=str)
    _value(parser, "signals_to_handle", "The signals to the launcher that end the workers.", default=default_signals, type=str)
    _value(
        parser, "shutdown_timeout", "Seconds that workers have to end when the launcher is told to: then they are killed (30).", type=int
    )
    _value(
        parser,
        "numa_binding",
        "Bind workers to processors near their GPUs. Not available.",
        type=str,
        choices=["node", "socket", "exclusive", "core-complex"],
    )
    _switch(parser, "virtual_local_rank", "Each worker sees one GPU, and LOCAL_RANK=0.")


def _program(parser: ArgumentParser) -> None:
    _switch(parser, "module", "The program is a module, as with `python -m`.", "-m")
    _switch(parser, "no_python", "The program is started directly, not with Python.")
    _switch(parser, "run_path", "The script (an absolute path) runs in a process that is made by multiprocessing.")


def _output(parser: ArgumentParser) -> None:
    _value(parser, "log_dir", "Where output and errors of workers are kept: a folder for each run, attempt and worker.", type=str)
    streams = "1 standard output, 2 standard error, 3 both; or for each local rank, as in 0:3,1:1"
    _value(parser, "redirects", f"Streams that go to files in the log folder: {streams}.", "-r", default="0", type=str)
    _value(
        parser,
        "tee",
        "Streams that go to files and are shown, each line with its worker in front (see --redirects).",
        "-t",
        default="0",
        type=str,
    )
    _value(parser, "local_ranks_filter", "The local ranks whose output is shown, as in 0,1.", default="", type=str)
    for stream in ("stdout", "stderr"):
        _value(
            parser,
            f"duplicate_{stream}_filters",
            f"Lines shown of {stream} that contain one of these words are copied to filtered_{stream}.log; a comma in a word is written twice.",
            default=[],
            type=words,
        )
    _value(parser, "logs_specs", "The entry point (group torchrun.logs_specs) of a class that decides on files.", type=str)


def words(text: str) -> list[str]:
    """Words between commas; two commas stand for one.

    >>> words("loss,step 1,,000")
    ['loss', 'step 1,000']
    """
    return [word.replace("\0", ",") for word in text.replace(",,", "\0").split(",")] if text else []
