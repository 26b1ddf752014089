"""torch.utils.weak: dictionaries by tensors themselves, whose == compares elements, that do not keep them alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from flambeau.tensor import Tensor

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary", "WeakTensorRef"]


class WeakIdRef(weakref.ref):
    """A reference that is equal to another if both mean the same object."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None):
        self._id = id(key)
        super().__init__(key, callback)  # type: ignore[call-arg]

    def __call__(self) -> Any:
        return super().__call__()

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine, others = self(), other() if isinstance(other, weakref.ref) else None
        return mine is others if mine is not None and others is not None else self is other


class WeakIdKeyDictionary(MutableMapping):
    """A dictionary by the identity of its keys. An entry goes when its key does."""

    def __init__(self, dict: Mapping | None = None, ref_type: type[WeakIdRef] = WeakIdRef):
        self.data: dict_[WeakIdRef, Any] = {}
        self.ref_type = ref_type
        for key, value in (dict or {}).items():
            self[key] = value

    def _reference(self, key: Any) -> WeakIdRef:
        own = weakref.ref(self)

        def forget(gone: Any) -> None:
            there = own()
            if there is not None:
                there.data.pop(gone, None)

        return self.ref_type(key, forget)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self._reference(key)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # what nothing can refer to weakly is no key
            return False

    def __iter__(self) -> Iterator:
        return iter([key for reference in list(self.data) if (key := reference()) is not None])

    def __len__(self) -> int:
        return sum(reference() is not None for reference in list(self.data))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def keyrefs(self) -> list[WeakIdRef]:
        """The references that are the keys."""
        return list(self.data)

    def copy(self) -> WeakIdKeyDictionary:
        """Another dictionary with the same entries."""
        return WeakIdKeyDictionary(self, self.ref_type)


dict_ = dict
WeakTensorKeyDictionary = WeakIdKeyDictionary
WeakTensorRef = WeakIdRef


class TensorWeakRef:
    """A reference to a tensor that does not keep it alive."""

    def __init__(self, tensor: Tensor):
        if not isinstance(tensor, Tensor):
            raise AssertionError(f"expected torch.Tensor, got {type(tensor)}")
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()
