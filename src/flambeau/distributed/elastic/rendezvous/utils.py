"""What users write about a meeting, taken apart: an endpoint, a configuration. And whether a host is this machine."""

from __future__ import annotations

import socket

__all__ = ["parse_rendezvous_endpoint"]


def parse_rendezvous_endpoint(endpoint: str | None, default_port: int) -> tuple[str, int]:
    """Host and port of "host:port", "host", "[::1]:port" or nothing.

    >>> parse_rendezvous_endpoint("node1:29400", 1), parse_rendezvous_endpoint("[::1]", 7)
    (('node1', 29400), ('::1', 7))
    """
    text = (endpoint or "").strip()
    if not text:
        return "localhost", default_port
    host, separator, digits = text.rpartition(":")
    if not separator or text.endswith("]") or (host.count(":") and not host.endswith("]")):
        host, digits = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or " " in host:
        raise ValueError(f"The rendezvous endpoint {endpoint!r} must be host:port: its host is {host!r}")
    if not digits.isdigit() or int(digits) > 65535:
        raise ValueError(
            f"The rendezvous endpoint {endpoint!r} must be host:port: its port must be a number from 0 to 65535, not {digits!r}"
        )
    return host, int(digits)


def _parse_rendezvous_config(config_str: str) -> dict[str, str]:
    """The dictionary of "key1=value1,key2=value2"."""
    config: dict[str, str] = {}
    for pair in config_str.strip().split(",") if config_str.strip() else []:
        key, separator, value = (part.strip() for part in pair.partition("="))
        if not key:
            raise ValueError(f"The rendezvous configuration {config_str!r} must be <key1>=<value1>,<key2>=<value2>,...")
        if not separator or not value:
            raise ValueError(f"The rendezvous configuration option {key!r} must have a value specified.")
        config[key] = value
    return config


def _matches_machine_hostname(host: str) -> bool:
    """Whether an address is one of this machine's: then, and only then, one can listen there.

    >>> _matches_machine_hostname("localhost")
    True
    """
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return host in (socket.gethostname(), socket.getfqdn())
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
        except OSError:
            continue
        return True
    return False
