"""Named results: what an operation with several results returns, such as `torch.return_types.max(values=..., indices=...)`."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

TYPES: dict[str, type[NamedResult]] = {}  # by name, as in torch.return_types


class NamedResult(tuple):
    """A tuple whose items have names too. Made from its items, or from one sequence of them."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def __new__(cls, *items):
        if len(items) == len(cls._fields) > 1:
            return tuple.__new__(cls, items)
        if len(items) == 1 and len(cls._fields) != 1:
            items = tuple(items[0])
        if len(items) != len(cls._fields):
            raise TypeError(f"{cls.__name__} takes {len(cls._fields)} items ({', '.join(cls._fields)}), found {len(items)}")
        return tuple.__new__(cls, items)

    @property
    def n_fields(self) -> int:
        """How many items have names: all of them."""
        return len(self._fields)

    def __repr__(self) -> str:
        items = ",\n".join(f"{name}={item!r}" for name, item in zip(self._fields, self, strict=True))
        return f"torch.return_types.{type(self).__name__}(\n{items})"

    def __reduce__(self):
        return _again, (type(self).__name__, self._fields, tuple(self))


class Kept(dict):
    """What an operation keeps for its derivative beside its result: one object, whoever carries the operation out. (A plain dictionary is a
    container, which those who look for tensors take apart and make anew.)"""

    __slots__ = ()


def named_result(name: str, fields: str | tuple[str, ...]) -> type[NamedResult]:
    """The type of the results of one operation; the same type for the same name.

    >>> named_result("example", "values indices")(1, 2)
    torch.return_types.example(
    values=1,
    indices=2)
    """
    fields = tuple(fields.split()) if isinstance(fields, str) else tuple(fields)
    found = TYPES.get(name)
    if found is None:
        body: dict[str, Any] = {"__slots__": (), "_fields": fields, "__module__": "torch.return_types"}
        body["__match_args__"] = fields
        body |= {field: property(itemgetter(i)) for i, field in enumerate(fields)}
        found = TYPES.setdefault(name, type(name, (NamedResult,), body))  # of two threads, one makes it
    return found


def _again(name: str, fields: tuple[str, ...], items: tuple) -> NamedResult:
    """A pickled result, read back."""
    return named_result(name, fields)(*items)
