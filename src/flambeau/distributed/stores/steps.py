"""Every operation of a store, declared once: what it does to the table of keys, or which keys it has to wait for.

    @step(waits=True)
    def get(table, key):
        return [table.value(key)]       # raises Missing([key]) while nobody has set it

A step takes and returns lists of bytes, so the same declaration runs in a HashStore, in the server of a TCPStore, and again in every process
that reads the log of a FileStore. A step that waits looks first and changes afterwards: it is tried again from its beginning when a key arrives.
One that has to change something before it waits goes on as another step (`arrive`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from flambeau.distributed.errors import DistStoreError, QueueEmptyError

HIDDEN = b"\0"  # keys that begin so are the stores' own: `list_keys` leaves them out


class Missing(Exception):  # no error, but the news that it is too early
    """A step cannot be answered before somebody sets these keys."""

    def __init__(self, keys: list[bytes]):
        super().__init__(keys)
        self.keys = keys


class GoesOn(Exception):  # no error either
    """A step has done its part; the rest, and the answer, are those of another step."""

    def __init__(self, step: Step, fields: list[bytes]):
        super().__init__(step.name, fields)
        self.step, self.fields = step, fields


@dataclass(slots=True)
class Contents:
    """What a store holds. `changed` collects the keys that steps have written, for those who wait for them."""

    values: dict[bytes, bytes] = field(default_factory=dict)
    queues: dict[bytes, deque[bytes]] = field(default_factory=dict)
    changed: list[bytes] = field(default_factory=list)

    def put(self, key: bytes, value: bytes) -> None:
        self.values[key] = value
        self.changed.append(key)

    def value(self, key: bytes) -> bytes:
        try:
            return self.values[key]
        except KeyError:
            raise Missing([key]) from None

    def there(self, key: bytes) -> bool:
        return key in self.values or key in self.queues

    def number(self, key: bytes) -> int:
        """The counter that `add` moves: nothing and the empty value count as zero, and what follows the digits is not looked at."""
        value = self.values.get(key, b"")
        digits = re.match(rb"\s*[+-]?\d+", value)
        if digits is None and value:
            raise ValueError(
                f"add: the value of {key.decode(errors='replace')!r} is {value[:40]!r}, which is no number. Counters need a key of their own."
            )
        return int(digits[0]) if digits else 0


@dataclass(frozen=True, slots=True)
class Step:
    """One operation.

    number  its name on the wire and in files
    waits   it may have to wait for keys
    writes  it may change the contents
    """

    name: str
    number: int
    run: Callable[..., list[bytes]]
    waits: bool
    writes: bool


STEPS: list[Step] = []  # numbered by their place


def step(*, waits: bool = False, writes: bool = False) -> Callable[[Callable[..., list[bytes]]], Step]:
    """Declare a step."""

    def declare(run: Callable[..., list[bytes]]) -> Step:
        STEPS.append(declared := Step(run.__name__, len(STEPS), run, waits, writes))
        return declared

    return declare


@step(writes=True)
def set(contents: Contents, key: bytes, value: bytes) -> list[bytes]:
    """Give a key a value, whatever it had."""
    contents.put(key, value)
    return []


@step(waits=True)
def get(contents: Contents, key: bytes) -> list[bytes]:
    """The value of a key, once it has one."""
    return [contents.value(key)]


@step(writes=True)
def add(contents: Contents, key: bytes, amount: bytes) -> list[bytes]:
    """Move a counter, which starts at zero; where it stands then. 64 bits, which wrap around."""
    total = (contents.number(key) + int(amount) + 2**63) % 2**64 - 2**63
    contents.put(key, b"%d" % total)
    return [contents.values[key]]


@step(waits=True)
def reach(contents: Contents, key: bytes, target: bytes) -> list[bytes]:
    """Where a counter stands, once it is at `target` or beyond."""
    if contents.number(key) < int(target):
        raise Missing([key])
    return [contents.value(key)]


@step(waits=True, writes=True)
def arrive(contents: Contents, key: bytes, world_size: bytes) -> list[bytes]:
    """Count in at a barrier, then wait for the rest of the same round.

    One step, because whoever hosts the store may leave as soon as all have arrived: there is no time for a second question.
    """
    arrived = contents.number(key) + 1
    contents.put(key, b"%d" % arrived)
    raise GoesOn(reach, [key, b"%d" % (arrived + -arrived % int(world_size))])


@step()
def check(contents: Contents, *keys: bytes) -> list[bytes]:
    """b"1" if all keys are there, otherwise b""."""
    return [b"1" if all(map(contents.there, keys)) else b""]


@step(waits=True)
def wait(contents: Contents, *keys: bytes) -> list[bytes]:
    """Nothing, once all keys are there."""
    if missing := [key for key in keys if not contents.there(key)]:
        raise Missing(missing)
    return []


@step(writes=True)
def compare_set(contents: Contents, key: bytes, expected: bytes, desired: bytes) -> list[bytes]:
    """Set a key that has the value expected; an empty expectation also means a key that is not there. What the key has then.

    A key that is not there, but should have been, stays so, and the answer is what was expected of it: that is PyTorch's answer.
    """
    found = contents.values.get(key)
    if found == expected or (found is None and not expected):
        contents.put(key, desired)
        return [desired]
    return [expected if found is None else found]


@step(writes=True)
def append(contents: Contents, key: bytes, value: bytes) -> list[bytes]:
    """Add to the end of a value."""
    contents.put(key, contents.values.get(key, b"") + value)
    return []


@step(waits=True)
def multi_get(contents: Contents, *keys: bytes) -> list[bytes]:
    """The values of all keys, once all have one."""
    if missing := [key for key in keys if key not in contents.values]:
        raise Missing(missing)
    return [contents.values[key] for key in keys]


@step()
def multi_get_if_there(contents: Contents, *keys: bytes) -> list[bytes]:
    """For every key b"1" and its value, or b"" and b""."""
    return [part for key in keys for part in ((b"1", contents.values[key]) if key in contents.values else (b"", b""))]


@step(writes=True)
def multi_set(contents: Contents, *keys_and_values: bytes) -> list[bytes]:
    """Set key, value, key, value, and so on, all at once."""
    for key, value in zip(keys_and_values[::2], keys_and_values[1::2], strict=True):
        contents.put(key, value)
    return []


@step()
def num_keys(contents: Contents) -> list[bytes]:
    """How many keys there are; the stores' own count as one, which is how many PyTorch's has."""
    own = sum(key.startswith(HIDDEN) for key in contents.values)
    return [b"%d" % (len(contents.values) - own + bool(own))]


@step()
def list_keys(contents: Contents) -> list[bytes]:
    """The names of all keys, without the stores' own."""
    return [key for key in contents.values if not key.startswith(HIDDEN)]


@step(writes=True)
def delete_key(contents: Contents, key: bytes) -> list[bytes]:
    """Forget a key: b"1" if there was one."""
    return [b"" if contents.values.pop(key, None) is None else b"1"]


@step(writes=True)
def queue_push(contents: Contents, key: bytes, value: bytes) -> list[bytes]:
    """Put a value at the end of a queue."""
    contents.queues.setdefault(key, deque()).append(value)
    contents.changed.append(key)
    return []


@step(waits=True, writes=True)
def queue_pop(contents: Contents, key: bytes, block: bytes) -> list[bytes]:
    """Take the value at the front of a queue, once there is one."""
    queue = contents.queues.get(key)
    if not queue:
        if block:
            raise Missing([key])
        raise QueueEmptyError(f"queue_pop: the queue {key.decode(errors='replace')!r} is empty, and block=False says not to wait")
    value = queue.popleft()
    if not queue:
        del contents.queues[key]
    return [value]


@step()
def queue_len(contents: Contents, key: bytes) -> list[bytes]:
    """How many values are in a queue."""
    return [b"%d" % len(contents.queues.get(key, ()))]


# What a step may raise, by the name under which it travels.
PROBLEMS: dict[bytes, type[Exception]] = {
    kind.__name__.encode(): kind for kind in (DistStoreError, QueueEmptyError, ValueError, TypeError, RuntimeError)
}
