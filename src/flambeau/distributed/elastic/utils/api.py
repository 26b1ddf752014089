"""macros: arguments that differ from worker to worker. And two questions to the machine."""

from __future__ import annotations

import os
import socket
from string import Template
from typing import Any

__all__ = ["get_env_variable_or_raise", "get_socket_with_port", "macros"]


class macros:
    """Names that stand for something else in each worker.

    >>> macros.substitute(["--device", "cuda:${local_rank}"], "1")
    ['--device', 'cuda:1']
    """

    local_rank = "${local_rank}"

    @staticmethod
    def substitute(args: list[Any], local_rank: str) -> list[str]:
        """The arguments of one worker."""
        return [Template(arg).safe_substitute(local_rank=local_rank) if isinstance(arg, str) else arg for arg in args]


def get_env_variable_or_raise(env_name: str) -> str:
    """The value of an environment variable; ValueError if there is none."""
    value = os.environ.get(env_name)
    if value is None:
        raise ValueError(f"{env_name} is not set in the environment")
    return value


def get_socket_with_port() -> socket.socket:
    """A socket that holds a free port of this machine, listening."""
    for family, kind, protocol, _, _ in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        try:
            made.bind(("localhost", 0))
            made.listen(0)
        except OSError:
            made.close()
            continue
        return made
    raise RuntimeError("no socket of this machine can listen on localhost")
