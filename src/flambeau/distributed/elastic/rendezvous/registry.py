"""Which ways of meeting there are: static, c10d, and those of packages with an entry point in torchrun.handlers."""

from __future__ import annotations

from flambeau.distributed.elastic.rendezvous.api import RendezvousHandler, RendezvousParameters, rendezvous_handler_registry

__all__ = ["get_rendezvous_handler"]


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """The handler that `params` ask for."""
    if params.backend not in rendezvous_handler_registry._registry:
        _register_installed(params.backend)
    return rendezvous_handler_registry.create_handler(params)


def _static(params: RendezvousParameters) -> RendezvousHandler:
    from flambeau.distributed.elastic.rendezvous import static_tcp_rendezvous

    return static_tcp_rendezvous.create_rdzv_handler(params)


def _c10d(params: RendezvousParameters) -> RendezvousHandler:
    from flambeau.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
    from flambeau.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    backend, store = create_backend(params)
    return create_handler(store, backend, params)


def _etcd(params: RendezvousParameters) -> RendezvousHandler:
    raise NotImplementedError(
        f"--rdzv_backend={params.backend}: agents do not meet in etcd. Let one machine keep the store: --rdzv_backend=c10d --rdzv_endpoint=HOST:PORT"
    )


def register_default_handlers() -> None:
    """The built-in ones."""
    for name, creator in {"static": _static, "c10d": _c10d, "etcd": _etcd, "etcd-v2": _etcd}.items():
        rendezvous_handler_registry.register(name, creator)


def _register_installed(name: str) -> None:
    from importlib.metadata import entry_points

    for point in entry_points(group="torchrun.handlers", name=name):
        rendezvous_handler_registry.register(name, point.load())
