"""Stores: keys and values that processes share, by which they find each other and agree on things."""

from flambeau.distributed.stores.file_store import FileStore
from flambeau.distributed.stores.hash_store import HashStore
from flambeau.distributed.stores.prefix_store import PrefixStore
from flambeau.distributed.stores.store import Store
from flambeau.distributed.stores.tcp_store import TCPStore

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]
