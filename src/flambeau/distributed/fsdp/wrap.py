"""Which modules are divided among ranks as one: policies for `auto_wrap_policy`, and `wrap` for models that say it themselves.

A policy is an object with `_run_policy`, which sees the whole tree and says at once what each chosen module is wrapped with (ModuleWrapPolicy,
CustomPolicy), or a function policy(module, recurse, nonwrapped_numel), asked on the way down whether to look inside a module (recurse=True), and on the way
up whether to wrap it, given how many elements in it are not wrapped yet.

    FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({TransformerBlock}))
    FullyShardedDataParallel(model, auto_wrap_policy=partial(size_based_auto_wrap_policy, min_num_params=1_000_000))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau.nn.modules.activation import MultiheadAttention
from flambeau.nn.modules.container import ModuleDict, ModuleList
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

__all__ = [
    "CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy", "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy", "wrap",
]  # fmt: skip

# -- policies that see the whole tree ------------------------------------------------------------------------------


class _Policy(ABC):
    """Chooses modules of a tree."""

    @abstractmethod
    def _run_policy(self, root_module: Module, ignored_modules: set[Module], root_kwargs: dict[str, Any]) -> dict[Module, dict[str, Any]]:
        """{module to be wrapped: arguments of its wrapper}."""


class ModuleWrapPolicy(_Policy):
    """Every module of certain classes, each with the arguments of the root."""

    def __init__(self, module_classes: Iterable[type[Module]]):
        self._module_classes = set(module_classes)
        self._module_classes_str = str(self._module_classes)

    def _run_policy(self, root_module: Module, ignored_modules: set[Module], root_kwargs: dict[str, Any]) -> dict[Module, dict[str, Any]]:
        chosen = tuple(self._module_classes)
        return {
            module: dict(root_kwargs) for module in root_module.modules() if module not in ignored_modules and isinstance(module, chosen)
        }

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return _module_wrap_policy(module, recurse, -1, self._module_classes)

    def __repr__(self) -> str:
        return f"{super().__repr__()}({self._module_classes_str})"


class CustomPolicy(_Policy):
    """Asks a function of a module: False (or {}) leaves it, True wraps it as the root is, a dictionary changes some of the root's arguments for it."""

    def __init__(self, lambda_fn: Callable[[Module], bool | dict[str, Any]]):
        self._lambda_fn = lambda_fn

    def _run_policy(self, root_module: Module, ignored_modules: set[Module], root_kwargs: dict[str, Any]) -> dict[Module, dict[str, Any]]:
        chosen = {}
        for module in root_module.modules():
            if module in ignored_modules:
                continue
            answer = self._lambda_fn(module)
            if not isinstance(answer, (dict, bool)):
                raise ValueError(f"The lambda_fn passed to CustomPolicy should return False/True or a kwarg dict, but it returned {answer}")
            if answer:
                chosen[module] = {**root_kwargs, **(answer if isinstance(answer, dict) else {})}
        return chosen


# -- policies that are asked module by module ----------------------------------------------------------------------


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module."""
    return True


def lambda_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]) -> bool:
    """Every module for which a function says so."""
    return recurse or lambda_fn(module)


def _module_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int, module_classes: Iterable[type[Module]]) -> bool:
    """Every module of certain classes."""
    return recurse or isinstance(module, tuple(module_classes))


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Iterable[type[Module]]
) -> bool:
    """Every module of certain classes: the blocks of a transformer. Embeddings that are shared stay together, in the root."""
    return _module_wrap_policy(module, recurse, nonwrapped_numel, transformer_layer_cls)


def _wrap_module_cls_individually(module: Module, module_classes: Sequence[type], recurse: bool, *args: Any, **kwargs: Any) -> bool:
    return recurse or isinstance(module, tuple(module_classes))


def _or_policy(module: Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[Callable[..., bool]]) -> bool:
    """Whatever one of several policies chooses."""
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Modules with at least `min_num_params` elements that are not wrapped yet; not inside `force_leaf_modules`, and never `exclude_wrap_modules` themselves."""
    leaves = size_based_auto_wrap_policy.FORCE_LEAF_MODULES if force_leaf_modules is None else force_leaf_modules  # type: ignore[attr-defined]
    excluded = size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES if exclude_wrap_modules is None else exclude_wrap_modules  # type: ignore[attr-defined]
    return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(leaves if recurse else excluded))


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {ModuleList, ModuleDict}  # type: ignore[attr-defined]
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {MultiheadAttention}  # type: ignore[attr-defined]


# -- wrapping ------------------------------------------------------------------------------------------------------


def _post_order_apply(root_module: Module, fn: Callable[[Module], Module | None]) -> None:
    """Call fn on every module, children first and a shared one once, and put what it returns, if anything, into the module's place."""
    seen = {root_module}

    def visit(module: Module, name: str, parent: Module | None) -> None:
        for child_name, child in module.named_children():
            if child not in seen:
                seen.add(child)
                visit(child, child_name, module)
        instead = fn(module)
        if instead is None:
            return
        assert isinstance(instead, Module), f"fn should return None or an nn.Module but got {instead}"
        assert parent is not None, f"Non-root modules should have their parent module set but got {parent} for {module}"
        setattr(parent, name, instead)

    visit(root_module, "", None)


def _construct_wrap_fn(
    root_module: Module, target_module_to_kwargs: dict[Module, dict[str, Any]], fsdp_fn: Callable[..., Module]
) -> Callable[[Module], Module | None]:
    """What `_post_order_apply` is to do for the choice of a policy. The root is left to whoever wraps it."""

    def fn(module: Module) -> Module | None:
        if module in target_module_to_kwargs and module is not root_module:
            return fsdp_fn(module, **target_module_to_kwargs[module])
        return None

    return fn


def _run_mixed_precision_override_policy(
    root_module: Module,
    module_classes: Iterable[type[Module]],
    ignored_modules: set[Module],
    root_kwargs: dict[str, Any],
    target_module_to_kwargs: dict[Module, dict[str, Any]],
) -> dict[Module, dict[str, Any]]:
    """The choice of a policy with modules of certain classes added to it, which are computed in full precision."""
    chosen = tuple(module_classes)
    for module in root_module.modules():
        if module not in ignored_modules and isinstance(module, chosen):
            target_module_to_kwargs[module] = {**target_module_to_kwargs.get(module, root_kwargs), "mixed_precision": None}
    return target_module_to_kwargs


def _recursive_wrap(
    module: Module,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Callable[..., Module],
    ignored_modules: set[Module],
    ignored_params: set[Parameter],
    only_wrap_children: bool = False,
    _made: dict[Module, tuple[Module, int]] | None = None,
    **kwargs: Any,
) -> tuple[Module, int]:
    """Wrap what a function chooses, from the leaves up; (the module or its wrapper, how many elements are wrapped now).

    A module that has several places has one wrapper in all of them: `_made` has what came of those that have been met.
    """
    assert auto_wrap_policy is not None, "Must specify auto_wrap_policy."
    assert wrapper_cls is not None, "Must specify wrapper_cls"
    if isinstance(wrapper_cls, type):
        wrapped_already = [child for child in module.modules() if child not in ignored_modules and isinstance(child, wrapper_cls)]
        assert not wrapped_already, f"Child module {wrapped_already[0]} is already wrapped by {wrapper_cls}"
    total = sum(p.numel() for p in module.parameters() if p not in ignored_params)
    if not auto_wrap_policy(module=module, recurse=True, nonwrapped_numel=total):
        return module, 0
    done, made = 0, {} if _made is None else _made
    for name, child in module.named_children():
        if child in ignored_modules:
            continue
        if child not in made:
            made[child] = _recursive_wrap(child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, _made=made, **kwargs)
        instead, elements = made[child]
        setattr(module, name, instead)
        done += elements
    if not only_wrap_children and auto_wrap_policy(module=module, recurse=False, nonwrapped_numel=total - done):
        return _wrap(module, wrapper_cls, **kwargs), total
    return module, done


def _wrap(module: Module, wrapper_cls: Callable[..., Module], **kwargs: Any) -> Module:
    """The module in its wrapper; what it says of itself in `_wrap_overrides` goes before the arguments."""
    assert wrapper_cls is not None, "Expected wrapper_cls to be set"
    return wrapper_cls(module, **{**kwargs, **getattr(module, "_wrap_overrides", {})})


class _ConfigAutoWrap:
    """What `wrap` does at present: nothing, or what the `enable_wrap` around it says."""

    in_autowrap_context: bool = False
    wrapper_cls: Callable[..., Module] | None = None
    kwargs: dict[str, Any] = {}  # of the class: the context is one for the process

    def __init__(self, **kwargs: Any):
        self.kwargs = kwargs

    @staticmethod
    def enable_autowrap_context(kwargs: Any) -> None:
        """Enter."""
        if _ConfigAutoWrap.in_autowrap_context:
            raise NotImplementedError("You are already within an autowrap context and we currently do not supported nested autowrap.")
        assert "wrapper_cls" in kwargs, "Expected to pass in wrapper_cls arg into _ConfigAutoWrap."
        _ConfigAutoWrap.in_autowrap_context = True
        _ConfigAutoWrap.wrapper_cls = kwargs["wrapper_cls"]
        _ConfigAutoWrap.kwargs = {name: value for name, value in kwargs.items() if name != "wrapper_cls"}

    @staticmethod
    def disable_autowrap_context() -> None:
        """Leave."""
        _ConfigAutoWrap.in_autowrap_context = False
        _ConfigAutoWrap.wrapper_cls = None
        _ConfigAutoWrap.kwargs = {}

    def __enter__(self) -> None:
        self.enable_autowrap_context(self.kwargs)

    def __exit__(self, *exception: object) -> None:
        self.disable_autowrap_context()


@contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """Within this, `wrap(module)` is `wrapper_cls(module, **wrapper_kwargs)`: a model that is built here is divided while it is built."""
    with _ConfigAutoWrap(wrapper_cls=wrapper_cls, **wrapper_kwargs):
        yield


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """The module in the wrapper of the `enable_wrap` around, with its arguments and these; outside of one, the module itself."""
    if not _ConfigAutoWrap.in_autowrap_context:
        return module
    assert _ConfigAutoWrap.wrapper_cls is not None, "Expected _ConfigAutoWrap.wrapper_cls to be set"
    return _wrap(module, _ConfigAutoWrap.wrapper_cls, **{**_ConfigAutoWrap.kwargs, **wrap_overrides})
