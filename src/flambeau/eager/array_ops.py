"""Running operations that are functions on arrays, and composites of other operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau import devices, dtypes, float8, modes
from flambeau.eager import inplace, older_calls, plans
from flambeau.eager.arguments import Arguments, check_tensors, not_a_tensor
from flambeau.eager.pointwise import OF_NUMBERS, common_device, with_a_tensor
from flambeau.eager.record import ending_in, needed_names, record_array
from flambeau.eager.saved import Before
from flambeau.interpreters import calls
from flambeau.interpreters.by_name import any_foreign
from flambeau.kernels import arrays
from flambeau.kernels.meta import MetaArray
from flambeau.kernels.native import memory_guard
from flambeau.ops.promotion import promoted
from flambeau.ops.results import Kept
from flambeau.tensor import PLAIN, Tensor, wrap


def bind(op) -> Callable:
    """The function that runs an array operation."""
    arguments = Arguments(op)
    op.arguments = arguments
    most, least = op.n_positional, len(op.parameters) - len(op.defaults)
    last = tuple(op.defaults[p] for p in op.parameters[least:] if p in op.defaults)  # of those that have a default
    plain = op.variadic is None and len(last) == len(op.defaults)
    by_keyword = op.parameters[most:]

    def front(*args, out=None, **kwargs):
        if plain and out is None and not modes.special:
            if not kwargs and least <= len(args) <= most:
                result = usual(op, args + last[len(args) - least :], by_keyword)
            else:
                result = _usual_by_name(op, args, kwargs, by_keyword)
            if result is not None:
                return result
        if modes.special or any_foreign((*args, *kwargs.values(), out)):
            if op.draws and modes.special and modes.state.draw is not None:
                return modes.state.draw(op.call, args, kwargs)
            return calls.run(op.call, body, args, kwargs if out is None else kwargs | {"out": out})
        return body(*args, out=out, **kwargs)

    def body(*args, out=None, **kwargs):
        values = _without_numpy_scalars(arguments.values(args, kwargs))
        by_name = dict(zip(arguments.parameters, values, strict=True))
        if out is not None:
            inplace.decide(op, by_name, out)
        results = run(op, by_name)
        return results if out is None else inplace.deliver(op, results, list(_tensors(values)), out)

    return front


def _without_numpy_scalars(values: tuple) -> tuple:
    """NumPy's scalars as Python's numbers: x.fill_(a.mean()) of an array a. They look like arrays to what works on arrays."""
    return tuple([v.item() if isinstance(v, np.generic) else v for v in values])


def _usual_by_name(op, args: tuple, kwargs: dict, by_keyword: tuple[str, ...]) -> Any:
    try:
        values = op.arguments.bind(*args, **kwargs)
    except TypeError:  # unknown, missing or twice: the long way says so
        return None
    return usual(op, values, by_keyword)


def usual(op, values: tuple, by_keyword: tuple[str, ...]) -> Any:
    """The usual case, without detours: tensors in main memory, or on the only GPU, of one dtype if they are to be promoted, and plain options.

    None where it is not so; then nothing has been done yet. Shapes that come once, as those of sequences of all lengths do, have no plan, and
    take 1.1 to 2 times as long by names.
    """
    given: list = []
    needs, dtype, home, promotes = False, None, np.ndarray, op.promote
    for v in values:
        kind = type(v)
        if kind in PLAIN:
            array = v._array
            if type(array) is not home:
                if dtype is not None or not arrays.on_only_gpu(array):
                    return None
                home = type(array)
            if promotes and (array.dtype.kind in "biu" or (dtype is not None and dtype != array.dtype)):
                return None
            dtype = array.dtype
            if dtype.char in float8.CHARS:
                return None
            if v._needs or (v._base is not None and v.requires_grad):
                needs = True
            given.append(array)
        elif kind in _OPTIONS or (
            kind is tuple and (not v or type(v[0]) is int or all([type(i) in _OPTIONS or type(i) is tuple for i in v]))
        ):
            given.append(v)
        elif kind is list and v:
            group = _usual_list(op, v, None if dtype is None else home)
            if group is None:
                return None
            dtype, wanted, found, home = group
            needs = needs or wanted
            given.append(found)
        else:
            return None
    if dtype is None:
        return None
    try:
        n = op.n_positional
        found = op.forward(*given[:n], **dict(zip(by_keyword, given[n:], strict=True))) if by_keyword else op.forward(*given)
    except MemoryError as problem:  # NumPy's own: programs that try a smaller batch next catch RuntimeError
        raise memory_guard.as_ours(problem) from None
    except AttributeError as problem:
        check_tensors(op, problem, values)
        raise
    return finish(op, found, values, needs)


def finish(op, found: Any, values: tuple, needs: bool) -> Any:
    """Wrap and record what an array operation computed."""
    several = isinstance(found, (tuple, list))
    results = tuple([wrap(as_array(a)) for a in (found if several else (found,))])
    if needs and op.differentiable and any(r._is_float() for r in results):
        record_array(op, results, values)
    whole = op.result_type(*results) if op.result_type is not None else results if several else results[0]
    if modes.watching:
        plans.note(plans.MAKES, op, values, results, whole)
    return whole


def as_array(value: Any) -> Any:
    """NumPy answers some 0-d questions with a scalar: an array again. And its empty arrays have strides of 0, which PyTorch's do not."""
    if (type(value) is np.ndarray or arrays.on_gpu(value)) and value.size:
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    return value if value.size or 0 not in value.strides else arrays.empty_beside(value, value.shape, value.dtype)


def _usual_list(op, values: list, home: type | None) -> tuple | None:
    """(dtype, whether a gradient is wanted, arrays, their type) of a list of tensors in one place, of one dtype if promoted; or None."""
    dtype, needs, given = None, False, []
    for t in values:
        if type(t) not in PLAIN:
            return None
        array = t._array
        if type(array) is not home:
            if home is not None or (type(array) is not np.ndarray and not arrays.on_only_gpu(array)):
                return None
            home = type(array)
        if op.promote and dtype is not None and dtype != array.dtype:  # `is`: float64 == None for NumPy
            return None
        dtype = array.dtype
        if dtype.char in float8.CHARS:
            return None
        needs = needs or t._needs or (t._base is not None and t.requires_grad)
        given.append(array)
    return dtype, needs, given, home


_OPTIONS = {int, float, bool, str, complex, type(None), Kept, dtypes.dtype, devices.device}


def run(op, by_name: dict[str, Any]):
    """Unwrap, compute, wrap, record."""
    given, found = compute(op, by_name)
    results = finish(op, found, tuple(given.values()), any(t.requires_grad for t in _tensors(given.values())))
    if modes.special and modes.state.inference:
        for r in results if isinstance(results, tuple) else (results,):
            r._inference = True
    return results


def compute(op, by_name: dict[str, Any]):
    """(arguments after promotion, resulting array or arrays)."""
    if op.promote:
        by_name = promote(op, by_name)
    tensors = list(_tensors(by_name.values()))
    arguments = {name: _unwrap(value) for name, value in by_name.items()}
    if not tensors:
        raise TypeError(f"{op.short}(): expected at least one Tensor, found {', '.join(type(v).__name__ for v in by_name.values())}")
    for t in tensors:
        if isinstance(t.dtype, dtypes.float8) and op.short not in MOVES:
            raise NotImplementedError(f'"{op.short}" not implemented for {t.dtype}, which is moved and converted only. Try x.float()')
    first = next(iter(by_name.values()))
    if type(first) is np.ndarray:
        raise not_a_tensor(op, first)
    if len(tensors) > 1:
        common_device(op, tensors)
    if tensors[0].is_meta:
        return by_name, _on_meta(op, arguments)
    try:
        found = op.forward(**arguments)
    except MemoryError as problem:
        raise memory_guard.as_ours(problem) from None
    except AttributeError as problem:
        check_tensors(op, problem, by_name.values())
        if not list(_tensors([first])):  # a list of numbers, say, was asked for what only arrays have
            raise not_a_tensor(op, first) from None
        raise
    if type(found) is np.ndarray and found.size:
        return by_name, found
    if isinstance(found, (tuple, list)):
        return by_name, type(found)([as_array(a) for a in found])
    return by_name, as_array(found)


# What only moves elements, and so can be done to floats of eight bits, which nothing computes with.
MOVES = frozenset(
    "all any cat clone diag_embed equal index index_put index_select masked_select repeat roll stack to_copy unsafe_view".split()
)


def _tensors(values):
    for value in values:
        for v in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(v, Tensor):
                yield v


def _unwrap(value):
    if isinstance(value, Tensor):
        return arrays.plain(value._array)
    if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value):
        return [arrays.plain(v._array) if isinstance(v, Tensor) else v for v in value]
    return value


def _on_meta(op, arguments):
    if op.shape_rule is None:
        raise NotImplementedError(f"{op.short} has no rule for tensors without data (device 'meta'). Create them on 'cpu' to compute.")
    found = op.shape_rule(**arguments)
    if isinstance(found, list):
        return tuple([MetaArray(*spec) for spec in found])
    return MetaArray(*found)


def promote(op, by_name: dict[str, Any]) -> dict[str, Any]:
    """Bring the tensors of `op.promote` to one dtype. The casts are recorded."""
    chosen = [by_name[name] for name in op.promote if by_name.get(name) is not None]
    common = promoted(*[v for value in chosen for v in (value if isinstance(value, (list, tuple)) else (value,))])
    if op.rule == "float" and common.category < dtypes.FLOAT:
        common = dtypes.get_default_dtype()

    def adapt(v):
        if isinstance(v, (list, tuple)):
            return [adapt(item) for item in v]
        return v.to(common) if isinstance(v, Tensor) and v.dtype is not common else v

    return by_name | {name: adapt(by_name.get(name)) for name in op.promote}


def bind_inplace(op) -> Callable:
    """Tensor.<name>_ of an array operation: computed, then written over the first argument."""
    arguments = op.arguments

    def front(*args, **kwargs):
        if modes.special or any_foreign((*args, *kwargs.values())):
            if op.draws and modes.special and modes.state.draw is not None:
                return modes.state.draw(op.call_inplace, args, kwargs)
            return calls.run(op.call_inplace, body, args, kwargs)
        return body(*args, **kwargs)

    def body(*args, **kwargs):
        values = _without_numpy_scalars(arguments.values(args, kwargs))
        by_name = dict(zip(arguments.parameters, values, strict=True))
        first = arguments.parameters[0]
        self = by_name[first]
        inplace.check_writable(op, self, list(_tensors(values)))
        writes = op.write is not None and not self.is_meta
        given, found = (by_name, None) if writes else compute(op, by_name)
        if found is not None:
            inplace.check_result(op, self, tuple(found.shape), dtypes.of_array(found))
        followed = values if op.differentiable else (self,)
        recorded = modes.state.grad and any(t.requires_grad for t in _tensors(followed)) and self._is_float()
        derivatives = [*op.derivatives.values(), *([op.joint_derivative] if op.joint_derivative else [])]
        reads = recorded and any(first in needed_names(f) for f in derivatives)
        before = Before(self, (self, *given.values()), reads) if recorded else None
        if found is None:
            bare = {name: _unwrap(value) for name, value in given.items()}
            op.write(**bare)
            if bare[first] is not self._array:  # but what is seen of it in a mirror
                arrays.write(self._array, bare[first])
        else:
            arrays.write(self._array, found)
        self._bump()
        if recorded:
            operands = (self, *list(given.values())[1:])
            inplace.rewrite(self, lambda result: record_array(op, (result,), operands, before))
        if modes.watching:
            note_write(op, values, found is None and bare[first] is self._array, recorded)
        return self

    return front


def note_write(op, values: tuple, plain: bool, recorded: bool) -> None:
    """Say to whoever watches what an in-place form did: its work, if that is all there is to it."""
    self = values[0]
    if not plain or op.promote or not (type(self._array) is np.ndarray or arrays.on_only_gpu(self._array)):
        return plans.note()
    bare = [[_unwrap(t) for t in v] if type(v) is list else _unwrap(v) for v in values]
    ready = op.find_work_in_place(*bare) if op.find_work_in_place is not None and type(self._array) is np.ndarray else None
    if ready is None:
        return plans.note(plans.WRITES, op, values, (), self, plans.Write(op.write, values, recorded=recorded))
    given = tuple([v for v in values if isinstance(v, Tensor)])
    return plans.note(plans.WRITES, op, values, (), self, plans.Write(ready, given, recorded=recorded))


def bind_choice(op, in_place: bool = False) -> Callable:
    """The function that runs the operation a choice names; or Tensor.<name>_, which runs its in-place form."""
    forward, strict = op.forward, in_place or not op.number_first
    row_major = op.row_major and not in_place
    has_older, of_numbers = op.name in older_calls.ORDERS, op.short in OF_NUMBERS and not in_place
    arguments = Arguments(op)

    def front(*args, out=None, **kwargs):
        kwargs = kwargs and arguments.known(kwargs)
        if has_older and len(args) > op.n_positional:
            args, kwargs = older_calls.reordered(op, op.short + "_" * in_place, args, kwargs)
        usual = out is None and not modes.special and args and type(args[0]) in PLAIN
        if usual and not any_foreign(args if not kwargs else (*args, *kwargs.values())):
            chosen, *operands = forward(*args, **kwargs)
            if row_major:
                operands[0] = operands[0].contiguous()
            return chosen.call_inplace(*operands) if in_place else chosen.call(*operands)
        if modes.special or any_foreign((*args, *kwargs.values(), out)):
            return calls.run(op.call_inplace if in_place else op.call, body, args, kwargs if out is None else kwargs | {"out": out})
        return body(*args, out=out, **kwargs)

    def body(*args, out=None, **kwargs):
        if of_numbers and args and not isinstance(args[0], Tensor):
            args = with_a_tensor(args)
        if strict and args and not isinstance(args[0], Tensor):
            raise not_a_tensor(op, args[0])
        chosen, *operands = forward(*args, **kwargs)
        if row_major:
            operands[0] = operands[0].contiguous()
        run = chosen.call_inplace if in_place else chosen.call
        return run(*operands) if out is None else run(*operands, out=out)

    return front


def bind_composite(op) -> Callable:
    """The function that runs a composite."""
    forward = op.forward if op.grad_name is None else ending_in(op.forward, op.grad_name)
    arguments = Arguments(op)
    of_list = op.parameters[:1] == ("tensors",)

    def front(*args, **kwargs):
        if not kwargs and not modes.special and args:
            first = args[0]
            if type(first) in PLAIN:
                if len(args) == 1 or not any_foreign(args):
                    try:
                        return forward(*args)
                    except AttributeError as problem:
                        check_tensors(op, problem, args)
                        raise
            elif of_list and type(first) is list and not any_foreign(first) and not any_foreign(args[1:]):
                return forward(*args)
        kwargs = kwargs and arguments.known(kwargs)
        if modes.special or any_foreign((*args, *kwargs.values())):
            return calls.run(op.call, body, args, kwargs)
        return body(*args, **kwargs)

    def body(*args, **kwargs):
        try:
            return forward(*args, **kwargs)
        except AttributeError as problem:
            if args and not isinstance(args[0], Tensor):  # a list, say, was asked for what only tensors have
                raise not_a_tensor(op, args[0]) from None
            check_tensors(op, problem, args)
            raise

    def front_with_out(*args, out=None, **kwargs):
        if out is None:
            if not kwargs and not modes.special and len(args) == 1 and type(args[0]) in PLAIN:
                return forward(args[0])
            return front(*args, **kwargs)
        operands = list(_tensors((*args, *kwargs.values())))
        inplace.decide(op, kwargs, out)
        return inplace.deliver(op, front(*args, **kwargs), operands, out)

    return front_with_out if op.takes_out else front


def bind_composite_inplace(op) -> Callable:
    """Tensor.<name>_ of a composite: computed from a copy where history needs it, then copied over."""

    def front(self, *args, **kwargs):
        if modes.special or any_foreign((self, *args, *kwargs.values())):
            return calls.run(op.call_inplace, body, (self, *args), kwargs)
        return body(self, *args, **kwargs)

    def body(self, *args, **kwargs):
        inplace.check_writable(op, self, [self, *_tensors((*args, *kwargs.values()))])
        recorded = modes.state.grad and any(t.requires_grad for t in _tensors((self, *args, *kwargs.values())))
        if modes.watching:
            plans.note()
        result = op.call(self.clone() if recorded else self, *args, **kwargs)
        inplace.check_result(op, self, tuple(result._array.shape), result.dtype)
        return self.copy_(result)

    return front
