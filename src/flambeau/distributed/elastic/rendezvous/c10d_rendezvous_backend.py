"""C10dRendezvousBackend: the state of a meeting, kept in a store and changed by one agent at a time."""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import timedelta
from typing import Any

from flambeau.distributed.elastic.rendezvous.api import RendezvousConnectionError, RendezvousParameters, RendezvousStateError
from flambeau.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend
from flambeau.distributed.elastic.rendezvous.utils import _matches_machine_hostname, parse_rendezvous_endpoint
from flambeau.distributed.errors import DistError
from flambeau.distributed.stores import FileStore, TCPStore

__all__ = ["C10dRendezvousBackend", "create_backend"]

PORT = 29400
READ_TIMEOUT = 60  # seconds


class C10dRendezvousBackend(RendezvousBackend):
    """A token is the state as it was read: it changes only if it is still the same."""

    NOTHING = ""

    def __init__(self, store: Any, run_id: str) -> None:
        if not run_id:
            raise ValueError("The run id must be a non-empty string: --rdzv_id tells runs apart that meet at one endpoint")
        self._store = store
        self._key = f"torch.rendezvous.{run_id}"

    @property
    def name(self) -> str:
        return "c10d"

    def get_state(self) -> tuple[bytes, Any] | None:
        return self._read(self._call(self._store.compare_set, self._key, self.NOTHING, self.NOTHING))

    def set_state(self, state: bytes, token: Any | None = None) -> tuple[bytes, Any, bool] | None:
        before = self.NOTHING if token is None else token
        wanted = b64encode(state)
        found = self._call(self._store.compare_set, self._key, before, wanted)
        read = self._read(found)
        return None if read is None else (*read, bytes(found) == wanted)

    def _read(self, found: bytes) -> tuple[bytes, Any] | None:
        if not found:
            return None
        try:
            return b64decode(found, validate=True), bytes(found)
        except ValueError as problem:
            raise RendezvousStateError(
                f"the key {self._key!r} of the store holds {found!r:.60}, which is no state of a rendezvous ({problem}): does another program write there?"
            ) from problem

    def _call(self, method: Any, *arguments: Any) -> bytes:
        try:
            return method(*arguments)
        except (ValueError, RuntimeError) as problem:
            raise RendezvousConnectionError(f"the store in which the agents meet cannot be reached any more: {problem}") from problem


def create_backend(params: RendezvousParameters) -> tuple[C10dRendezvousBackend, Any]:
    """The backend and its store, for an endpoint and the options `store_type` (tcp, file), `is_host` and `read_timeout`."""
    kind = str(params.get("store_type", "tcp")).strip().lower()
    makers = {"tcp": _create_tcp_store, "file": _create_file_store}
    if kind not in makers:
        raise ValueError(f"--rdzv_conf store_type must be tcp or file, not {kind!r}")
    store = makers[kind](params)
    return C10dRendezvousBackend(store, params.run_id), store


def _create_tcp_store(params: RendezvousParameters) -> Any:
    """Keep the store if the endpoint is this machine and nobody has begun to; otherwise use the one that is there."""
    host, port = parse_rendezvous_endpoint(params.endpoint, PORT)
    asked = params.get_as_bool("is_host")
    timeout = timedelta(seconds=params.get_as_int("read_timeout", READ_TIMEOUT) or READ_TIMEOUT)
    problems = []
    for keeps in (True, False) if (_matches_machine_hostname(host) if asked is None else asked) else (False,):
        try:
            store = TCPStore(host, port, is_master=keeps, timeout=timeout, wait_for_workers=False)
        except (ValueError, DistError) as problem:
            problems.append(f"{'keeping' if keeps else 'reaching'} it: {problem}")
            if asked or port == 0:
                break
        else:
            store.kept_here = keeps  # type: ignore[attr-defined]
            return store
    raise RendezvousConnectionError(f"no store for the agents at {host}:{port} (--rdzv_endpoint). " + "; ".join(problems))


def _create_file_store(params: RendezvousParameters) -> Any:
    import os
    import tempfile

    path = params.endpoint
    if not path:
        descriptor, path = tempfile.mkstemp()
        os.close(descriptor)
    return FileStore(path)
