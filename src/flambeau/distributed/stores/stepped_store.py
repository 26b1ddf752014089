"""SteppedStore: a store's methods in terms of the table of steps. Its subclasses say where a step is run."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from datetime import timedelta

from flambeau.distributed.errors import DistStoreError
from flambeau.distributed.stores import steps
from flambeau.distributed.stores.steps import Step
from flambeau.distributed.stores.store import Store, Text, as_bytes
from flambeau.distributed.stores.timeouts import seconds


class SteppedStore(Store):
    """Every method of a store as one step."""

    def _run(self, step: Step, fields: Sequence[bytes], timeout: float) -> list[bytes]:
        """Run a step where the contents are; what it waits for must come within `timeout` seconds."""
        raise NotImplementedError

    def _ask(self, step: Step, *fields: bytes) -> list[bytes]:
        return self._run(step, fields, self._timeout.total_seconds())

    def set(self, key: str, value: Text, /) -> None:
        self._ask(steps.set, as_bytes(key), as_bytes(value))

    def get(self, key: str, /) -> bytes:
        return self._ask(steps.get, as_bytes(key))[0]

    def add(self, key: str, amount: int, /) -> int:
        return int(self._ask(steps.add, as_bytes(key), as_number(amount))[0])

    def check(self, keys: Sequence[str], /) -> bool:
        return bool(self._ask(steps.check, *as_keys(keys))[0])

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None, /) -> None:
        limit = self._timeout.total_seconds() if timeout is None else seconds(timeout, "wait")
        self._run(steps.wait, as_keys(keys), limit)

    def compare_set(self, key: str, expected_value: Text, desired_value: Text, /) -> bytes:
        return self._ask(steps.compare_set, as_bytes(key), as_bytes(expected_value), as_bytes(desired_value))[0]

    def append(self, key: str, value: Text, /) -> None:
        self._ask(steps.append, as_bytes(key), as_bytes(value))

    def delete_key(self, key: str, /) -> bool:
        return bool(self._ask(steps.delete_key, as_bytes(key))[0])

    def num_keys(self) -> int:
        return int(self._ask(steps.num_keys)[0])

    def list_keys(self) -> list[str]:
        return [key.decode() for key in self._ask(steps.list_keys)]

    def queue_push(self, key: str, value: Text, /) -> None:
        self._ask(steps.queue_push, as_bytes(key), as_bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._ask(steps.queue_pop, as_bytes(key), b"1" if block else b"")[0]

    def queue_len(self, key: str, /) -> int:
        return int(self._ask(steps.queue_len, as_bytes(key))[0])

    def has_extended_api(self) -> bool:
        return True

    def multi_get(self, keys: Sequence[str], /) -> list[bytes]:
        return self._ask(steps.multi_get, *as_keys(keys))

    def multi_set(self, keys: Sequence[str], values: Sequence[Text], /) -> None:
        names = as_keys(keys)
        if len(names) != len(values):
            raise DistStoreError(f"multi_set: {len(names)} keys, but {len(values)} values. Each key needs one value")
        self._ask(steps.multi_set, *(part for key, value in zip(names, values, strict=True) for part in (key, as_bytes(value))))

    def multi_get_if_there(self, keys: Sequence[str], /) -> list[bytes | None]:
        answer = self._ask(steps.multi_get_if_there, *as_keys(keys))
        return [value if there else None for there, value in zip(answer[::2], answer[1::2], strict=True)]

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        limit = self._timeout.total_seconds() if timeout is None else seconds(timeout, "barrier")
        if world_size < 1:
            raise ValueError(f"barrier: world_size is {world_size}, but a barrier needs at least one process")
        try:
            self._run(steps.arrive, (as_bytes(key), b"%d" % world_size), limit)
        except DistStoreError as problem:
            came = (self.add(key, 0) - 1) % world_size + 1
            raise DistStoreError(f"barrier: timeout after {limit * 1000:.0f}ms, key: {key}: {came} of {world_size} have come") from problem

    def __reduce__(self):
        raise TypeError(
            f"cannot pickle {type(self).__name__!r}: it stands for a connection of this process. "
            f"Send what it was made from (host and port, or the path), and make one there"
        )


def as_keys(keys: Sequence[str]) -> list[bytes]:
    """Several keys. One string is no list of keys, although Python could take it for one."""
    if isinstance(keys, (str, bytes, bytearray)):
        raise TypeError(f"a list of keys is expected, not the single key {keys!r}: write [{keys!r}]")
    return [as_bytes(key) for key in keys]


def as_number(amount: int) -> bytes:
    """A signed 64-bit number."""
    try:
        number = operator.index(amount)
    except TypeError:
        raise TypeError(f"add: a whole number is expected, not {amount!r}") from None
    if not -(2**63) <= number < 2**63:
        raise TypeError(f"add: {number} does not fit into 64 bits")
    return b"%d" % number
