"""What programs registered for operators, and which of it a call runs.

Note [the way of a call]: a call of an operator that has kernels of its own meets, in this order, as in PyTorch,

    vmap            FuncTorchBatched: the rule for batches, if an argument is batched
    autocast        AutocastCPU, AutocastCUDA: if a region is active
    autograd        AutogradCPU, ..., or Autograd: registered derivatives; without one the kernel below runs as it is, and results that it did not
                    record are marked, so that backward through them warns
    classes, modes  `overloads.intercept`, where nothing is recorded any more
    the device      CPU, CUDA, Meta, ..., else CompositeExplicitAutograd; on the meta device the fake implementation

CompositeImplicitAutograd stands for autograd and all devices: it is made of operators that know their derivatives. A kernel that wants to call the
one below it takes a guard (guards.py), or the set of keys that are left (`with_keyset`) for `OpOverload.redispatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau import devices, modes
from flambeau.eager.autocast import Casting, active, suspended
from flambeau.library.guards import Guard, thread
from flambeau.library.keys import BACKENDS, FULL_AUTOGRAD, DispatchKeySet, of_device
from flambeau.operators import calling
from flambeau.operators.overloads import OpOverload
from flambeau.operators.tags import is_composite
from flambeau.tensor import PLAIN, Tensor

EXPLICIT = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd")
IMPLICIT = "CompositeImplicitAutograd"


def fallthrough(*args: Any, **kwargs: Any) -> Any:
    """A kernel that is not there: the next one runs."""
    raise NotImplementedError("fallthrough_kernel() should never be called: it says that there is nothing to call.")


class Kernel:
    """A function that was registered for an operator and a key."""

    def __init__(self, function: Callable, with_keyset: bool, where: str):
        self.function, self.with_keyset, self.where, self.valid = function, with_keyset, where, True

    def __call__(self, keys: frozenset[str], args: tuple, kwargs: dict[str, Any]) -> Any:
        if not self.valid:
            raise RuntimeError(f"This kernel has been invalidated: the library that registered it is gone. It was {self.where}")
        return self.function(DispatchKeySet.of(keys), *args, **kwargs) if self.with_keyset else self.function(*args, **kwargs)


class Entry:
    """All that was registered for an operator."""

    def __init__(self, overload: OpOverload):
        self.overload = overload
        self.kernels: dict[str, list[Kernel]] = {}  # by key; the last is used, those before it come back when it goes
        self.fake: Any = None  # see fakes.py
        self.mapped: Callable | None = None  # the rule for vmap, see vmapping.py
        self.autograd: Any = None  # what register_autograd was given
        self.recording: Kernel | None = None  # the kernel for Autograd that was made of it
        self.dispatch_rules: dict[type, Callable] = {}  # of classes and modes with __torch_dispatch__
        self.custom: Any = None  # the CustomOpDef
        self.report: Callable[[str], Exception | None] | None = None  # what is said where there is no kernel for a device

    def own(self, key: str) -> Kernel | None:
        """What was registered for this very key."""
        found = self.kernels.get(key)
        return found[-1] if found else None

    def for_device(self, key: str) -> Kernel | None:
        """What runs on a device."""
        for name in (key, *EXPLICIT, IMPLICIT):
            found = self.own(name)
            if found is not None:
                return found
        return None

    def for_autograd(self, key: str) -> Kernel | None:
        """What runs before the device's, to record."""
        found = self.own(f"Autograd{key}") or self.own("Autograd")
        return self.own(IMPLICIT) if found is None and self.is_composite(key) else found

    def is_composite(self, key: str) -> bool:
        """Whether the operator is made of others for this device: then those record."""
        return self.own(IMPLICIT) is not None and not any(self.own(name) for name in (key, *EXPLICIT))

    def add(self, key: str, kernel: Kernel) -> None:
        self.kernels.setdefault(key, []).append(kernel)

    def drop(self, key: str, kernel: Kernel) -> None:
        """Forget a kernel that was registered."""
        kernel.valid = False
        found = self.kernels.get(key, [])
        if kernel in found:
            found.remove(kernel)
        if not found:
            self.kernels.pop(key, None)

    def is_empty(self) -> bool:
        return not (self.kernels or self.fake or self.mapped or self.dispatch_rules or self.custom)


registered: dict[OpOverload, Entry] = {}


def entry(overload: OpOverload) -> Entry:
    """The entry of an operator, made if there is none."""
    found = registered.get(overload)
    if found is None:
        found = registered[overload] = Entry(overload)
    return found


def forget(overload: OpOverload) -> None:
    """Drop an entry that has nothing left, or whose operator is gone."""
    registered.pop(overload, None)


def has(overload: OpOverload, key: Any) -> bool:
    """Whether something is there for a key: registered, or of the operators that are Flambeau's own."""
    name = getattr(key, "name", key)
    found = registered.get(overload)
    if found is not None and found.own(name) is not None:
        return True
    if overload.namespace != "aten":
        return False
    return name == IMPLICIT if is_composite(overload._schema) else name in ("CPU", "CUDA", "Meta", "AutogradCPU", "AutogradCUDA")


# -- a call --------------------------------------------------------------------------------------------------------------------------------


def run(overload: OpOverload, args: tuple, kwargs: dict[str, Any], allowed: frozenset[str] | None = None) -> Any:
    """Carry out a call of an operator that a program defined, or registered something for; NotImplemented if it did neither.
    `allowed`: the keys that are left."""
    found = registered.get(overload)
    if found is None:
        if overload.namespace in ("aten", "prim"):
            return NotImplemented
        found = entry(overload)
    args, kwargs = calling.normalized(overload._schema, calling.bind(overload._schema, args, kwargs))
    return Call(found, args, kwargs, allowed).run()


def tensors_of(values: Any) -> Iterator[Tensor]:
    """The tensors among arguments and in lists of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif type(value) in (list, tuple):
            yield from tensors_of(value)


class Call:
    """One call on its way down."""

    def __init__(self, found: Entry, args: tuple, kwargs: dict[str, Any], allowed: frozenset[str] | None):
        self.entry, self.args, self.kwargs = found, args, kwargs
        self.tensors = list(tensors_of((*args, *kwargs.values())))
        self.device = self.device_key()
        self.allowed = allowed

    def device_key(self) -> str:
        """The key of the tensors' device; "Undefined" where there is no tensor."""
        if "Meta" in thread.included:
            return "Meta"
        kinds = {t.device.type for t in self.tensors}
        kinds = kinds - {"cpu"} if len(kinds) > 1 else kinds
        if not kinds and self.entry.overload.namespace == "aten":
            given = self.kwargs.get("device")
            return of_device(devices.device(given).type if given is not None else devices.get_default_device().type)
        return of_device(min(kinds)) if kinds else "Undefined"

    def passes(self, key: str) -> bool:
        """Whether a key is passed over."""
        return key in thread.excluded or (self.allowed is not None and key not in self.allowed)

    def keys(self) -> frozenset[str]:
        """What a kernel that asks for it is told: the keys that this call meets."""
        met = {self.device, f"Autograd{self.device}" if self.device in BACKENDS else "AutogradOther", "ADInplaceOrView", "Python"}
        return (frozenset(met) | thread.included) - thread.excluded if self.allowed is None else self.allowed

    def run(self) -> Any:
        if modes.special:
            if modes.state.levels and not self.passes("FuncTorchBatched") and any(hasattr(t._array, "level") for t in self.tensors):
                return self.mapped()
            casting = active()
            if casting is not None:
                cast = self.cast(casting)
                if cast is not None and cast.function is fallthrough:
                    with suspended():
                        return self.recorded()
                if cast is not None:
                    return cast(self.keys(), self.args, self.kwargs)
        for key in ("TESTING_ONLY_GenericMode", "TESTING_ONLY_GenericWrapper"):
            if (
                key in thread.included
                and not self.passes(key)
                and (own := self.entry.own(key)) is not None
                and own.function is not fallthrough
            ):
                return own(self.keys(), self.args, self.kwargs)
        return self.recorded()

    def mapped(self) -> Any:
        """Inside vmap, with samples among the arguments."""
        if self.entry.is_composite(self.device) or self.entry.autograd is not None:
            return self.recorded()
        own = self.entry.own("FuncTorchBatched")
        if own is not None:
            return own(self.keys(), self.args, self.kwargs)
        from flambeau.library import vmapping

        return vmapping.run(self.entry, self.args, self.kwargs)

    def cast(self, casting: Casting) -> Kernel | None:
        """The kernel for autocast, where one is registered and a region is active for the device."""
        for device in casting.active:
            key = f"Autocast{of_device(device)}"
            if of_device(device) == self.device and not self.passes(key):
                return self.entry.own(key)
        return None

    def recorded(self) -> Any:
        """What autograd sees."""
        key = f"Autograd{self.device}" if self.device in BACKENDS else "AutogradOther"
        if key in FULL_AUTOGRAD and not self.passes(key) and self.device != "Undefined":
            own = self.entry.for_autograd(self.device)
            if own is not None and own is self.entry.recording and not self.wants_gradient():
                with modes.no_grad():  # what that kernel would do, without the way back to here
                    return self.below()
            if own is not None and own.function is not fallthrough:
                return own(self.keys(), self.args, self.kwargs)
            if own is None and self.entry.overload.namespace != "aten" and modes.state.grad and any(t.requires_grad for t in self.tensors):
                from flambeau.library import autograd

                return autograd.marked(self.entry.overload, self.below(), self.tensors)
        return self.below()

    def wants_gradient(self) -> bool:
        """Whether a node is to be recorded, or samples are mapped over, which the node knows how to do."""
        if modes.special and modes.state.levels and any(hasattr(t._array, "level") for t in self.tensors):
            return True
        return (not modes.paused or modes.state.grad) and any([t.requires_grad for t in self.tensors])

    def below(self) -> Any:
        """Modes and classes, and then the device."""
        overload = self.entry.overload
        if (
            overload.namespace != "aten"
            and (modes.special or any(type(t) not in PLAIN for t in self.tensors))
            and not self.passes("Python")
        ):
            from flambeau.library import asked

            result = asked.ask(self.entry, self.args, self.kwargs)
            if result is not NotImplemented:
                return result
        for key in ("ADInplaceOrView", "ZeroTensor", "Negative", "Conjugate", "BackendSelect"):
            own = self.entry.own(key)
            if own is not None and own.function is not fallthrough and not self.passes(key) and self.meets(key):
                return own(self.keys(), self.args, self.kwargs)
        return self.on_device()

    def meets(self, key: str) -> bool:
        """Whether a call comes by this key at all."""
        if key == "ADInplaceOrView":
            return True
        if key == "BackendSelect":
            return self.device == "Undefined"
        if key == "Negative":
            return any(t.is_neg() for t in self.tensors)
        if key == "Conjugate":
            return any(t.is_conj() for t in self.tensors)
        return False  # there are no tensors here that are zero by themselves

    def on_device(self) -> Any:
        """The kernel that computes."""
        found = self.entry
        if self.device == "Meta" and found.fake is not None and found.own("Meta") is None:
            return found.fake.run(self.args, self.kwargs)
        own = found.own("Undefined") or found.for_device(self.device) if self.device == "Undefined" else found.for_device(self.device)
        if self.device == "Meta" and found.custom is not None and found.own("Meta") is None:
            own = None  # a custom operator's function needs data
        if own is not None and own.function is not fallthrough:
            return own(self.keys(), self.args, self.kwargs)
        if found.overload.namespace == "aten":
            from flambeau.library import aten

            return aten.run(found.overload, self.args, self.kwargs)
        raise self.nothing()

    def nothing(self) -> Exception:
        """Nobody is there to compute it."""
        name, custom = self.entry.overload.name(), self.entry.custom
        own = None if self.entry.report is None else self.entry.report(self.device)
        if own is not None:
            return own
        if self.device == "Undefined":
            return NotImplementedError(
                f"There were no tensor arguments to this function (e.g., you passed an empty list of Tensors), but no fallback function is registered "
                f"for schema {name}. Register a kernel for CompositeExplicitAutograd, or pass a tensor. {self.there()}"
            )
        if self.device == "Meta" and custom is not None:
            return RuntimeError(
                f"There was no fake impl registered for {custom!r}. This is necessary for torch.compile/export/fx tracing to work. "
                f"Please use `{custom._fn_name}.register_fake` to add an fake impl."
            )
        if self.device == "Meta":
            return NotImplementedError(
                f"{name}: attempted to run this operator with Meta tensors, but there was no fake impl or Meta kernel registered. "
                f"torch.library.register_fake({name!r}, function) says what its results look like"
            )
        return NotImplementedError(
            f"Could not run '{name}' with arguments from the '{self.device}' backend: no kernel was registered for it. {self.there()}"
        )

    def there(self) -> str:
        keys = ", ".join(self.entry.kernels) or "nothing"
        return f"'{self.entry.overload.name()}' is only available for these backends: [{keys}]."


def thread_passes(key: str) -> Guard:
    """Within it, calls pass over a key."""
    return Guard(thread.excluded | {key}, thread.included)


def redispatch(overload: OpOverload, keys: DispatchKeySet, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The call again, meeting these keys alone."""
    result = run(overload, args, kwargs, keys.keys)
    return overload(*args, **kwargs) if result is NotImplemented else result
