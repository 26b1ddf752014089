"""torch._tensor_str: the parts a tensor's text is made of, for classes that print themselves. printing.py makes them."""

from __future__ import annotations

from typing import Any

from flambeau.tensor import printing
from flambeau.tensor.printing import get_printoptions, printoptions, set_printoptions

__all__ = ["get_printoptions", "printoptions", "set_printoptions"]


class _Options:
    """The options in force, as attributes. Setting one is set_printoptions."""

    def __getattr__(self, name: str) -> Any:
        found = get_printoptions()
        if name not in found:
            raise AttributeError(f"there is no print option {name!r}: there are {', '.join(found)}")
        return found[name]

    def __setattr__(self, name: str, value: Any) -> None:
        set_printoptions(**({"sci_mode": self.sci_mode} | {name: value}))


PRINT_OPTS = _Options()


def _tensor_str(self: Any, indent: int) -> str:
    """The elements in brackets, the first of which stands in column `indent`."""
    return printing.format_array(self.detach().resolve_conj().resolve_neg()._array, printing._kind(self.dtype), indent=indent)


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    return printing._append_suffixes(tensor_str, suffixes, indent, force_newline)


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor, perhaps with something else in place of its elements."""
    return self.__repr__(tensor_contents=tensor_contents)


_str_intern = _str
