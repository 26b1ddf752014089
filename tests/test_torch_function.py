"""`__torch_function__`: subclasses, foreign classes and modes are asked about every operation, as in PyTorch."""

from __future__ import annotations

import copy
import functools

import pytest
from history_oracle import FRAMEWORKS, agree, leaf, plain, questions, weigh

import flambeau

torch = pytest.importorskip("torch")


def logging_class(T):
    """A subclass that notes what it is asked about, and the list it notes it in."""
    log: list = []

    class Logged(T.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append((func.__name__, [t.__name__ for t in types], len(args), sorted(kwargs or {})))
            return super().__torch_function__(func, types, args, kwargs or {})

    return Logged, log


# -- what is asked ---------------------------------------------------------------------------------------------------------


ASKED = {
    "x + 1": lambda T, x, p: x + 1,
    "1 + x": lambda T, x, p: 1 + x,
    "torch.add": lambda T, x, p: T.add(x, 1),
    "x.add": lambda T, x, p: x.add(1),
    "plain + x": lambda T, x, p: p + x,
    "x * x": lambda T, x, p: x * x,
    "x - 1": lambda T, x, p: x - 1,
    "x / 2": lambda T, x, p: x / 2,
    "x ** 2": lambda T, x, p: x**2,
    "x @ x.T": lambda T, x, p: x @ x.T,
    "plain matmul": lambda T, x, p: T.matmul(p.T, x),
    "-x": lambda T, x, p: -x,
    "x < 1": lambda T, x, p: x < 1,
    "abs": lambda T, x, p: abs(x),
    "x[0]": lambda T, x, p: x[0],
    "x[0] = 1": lambda T, x, p: x.__setitem__(0, 1.0),
    "plain[0] = x": lambda T, x, p: p.__setitem__(0, x),
    "sum": lambda T, x, p: x.sum(),
    "torch.sum with keywords": lambda T, x, p: T.sum(x, dim=1, keepdim=True),
    "mean": lambda T, x, p: x.mean(0),
    "max": lambda T, x, p: x.max(1),
    "view": lambda T, x, p: x.view(6),
    "t": lambda T, x, p: x.t(),
    "T": lambda T, x, p: x.T,
    "mT": lambda T, x, p: x.mT,
    "real": lambda T, x, p: x.real,
    "shape": lambda T, x, p: x.shape,
    "size": lambda T, x, p: x.size(),
    "size(0)": lambda T, x, p: x.size(0),
    "dim": lambda T, x, p: x.dim(),
    "ndim": lambda T, x, p: x.ndim,
    "numel": lambda T, x, p: x.numel(),
    "stride": lambda T, x, p: x.stride(),
    "dtype": lambda T, x, p: x.dtype,
    "device": lambda T, x, p: x.device,
    "layout": lambda T, x, p: x.layout,
    "nbytes": lambda T, x, p: x.nbytes,
    "is_cuda": lambda T, x, p: x.is_cuda,
    "_version": lambda T, x, p: x._version,
    "requires_grad": lambda T, x, p: x.requires_grad,
    "requires_grad = False": lambda T, x, p: setattr(x, "requires_grad", False),
    "requires_grad_": lambda T, x, p: x.requires_grad_(False),
    "grad": lambda T, x, p: x.grad,
    "grad_fn": lambda T, x, p: x.grad_fn,
    "is_leaf": lambda T, x, p: x.is_leaf,
    "data": lambda T, x, p: x.data,
    "detach": lambda T, x, p: x.detach(),
    "clone": lambda T, x, p: x.clone(),
    "to": lambda T, x, p: x.to(T.float64),
    "double": lambda T, x, p: x.double(),
    "cat": lambda T, x, p: T.cat([x, p]),
    "stack": lambda T, x, p: T.stack((p, x)),
    "where": lambda T, x, p: T.where(p > 1, p, x),
    "x += 1": lambda T, x, p: x.__iadd__(1),
    "add_": lambda T, x, p: x.add_(1),
    "plain.add_": lambda T, x, p: p.add_(x),
    "out=": lambda T, x, p: T.add(p, 1, out=x),
    "item": lambda T, x, p: x[0, 0].item(),
    "tolist": lambda T, x, p: x.tolist(),
    "len": lambda T, x, p: len(x),
    "bool": lambda T, x, p: bool(x.sum()),
    "float": lambda T, x, p: float(x.sum()),
    "int": lambda T, x, p: int(x.sum()),
    "in": lambda T, x, p: 1.0 in x,
    "f-string": lambda T, x, p: f"{x.sum()}",
    "copy.copy": lambda T, x, p: copy.copy(x),
    "hash": lambda T, x, p: hash(x) == id(x),
    "exp": lambda T, x, p: x.exp(),
    "softmax": lambda T, x, p: T.softmax(x, 0),
    "chunk": lambda T, x, p: T.chunk(x, 2),
    "unbind": lambda T, x, p: x.unbind(),
    "sort": lambda T, x, p: x.sort(),
    "topk": lambda T, x, p: T.topk(x, 1),
    "zeros_like": lambda T, x, p: T.zeros_like(x),
    "new_zeros": lambda T, x, p: x.new_zeros(2),
    "ones": lambda T, x, p: T.ones(2),
    "tensor": lambda T, x, p: T.tensor(x),
    "einsum": lambda T, x, p: T.einsum("ij->j", x),
    "is_floating_point": lambda T, x, p: T.is_floating_point(x),
    "contiguous": lambda T, x, p: x.contiguous(),
    "is_contiguous": lambda T, x, p: x.is_contiguous(),
    "clamp": lambda T, x, p: x.clamp(0, 1),
    "clamp with keywords": lambda T, x, p: T.clamp(x, min=0.0),
    "expand": lambda T, x, p: x.expand(2, 2, 3),
    "reshape": lambda T, x, p: x.reshape(-1),
    "permute": lambda T, x, p: x.permute(1, 0),
    "squeeze": lambda T, x, p: x.squeeze(),
    "equal": lambda T, x, p: T.equal(x, x),
    "allclose": lambda T, x, p: T.allclose(x, x),
    "is_tensor": lambda T, x, p: T.is_tensor(x),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_subclass_is_asked(what):
    """The class is told the function, the types and the arguments that PyTorch tells it, and results have its type."""

    def question(T):
        cls, log = logging_class(T)
        x = T.arange(6.0).reshape(2, 3).as_subclass(cls)
        log.clear()
        found = ASKED[what](T, x, T.ones(2, 3))
        asked = list(log)
        kinds = [type(f).__name__ for f in found] if isinstance(found, tuple) and not hasattr(found, "numel") else type(found).__name__
        return kinds, asked

    agree(question)


def test_functions_can_be_told_apart():
    """func is the function that was called: HANDLED[func] works for functions, methods and attributes."""
    for T in FRAMEWORKS:
        handled = {T.add: "add", T.Tensor.exp: "exp", T.Tensor.shape.__get__: "shape", T.cat: "cat", T.Tensor.size: "size"}

        class Told(T.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None, handled=handled):
                return handled.get(func, NotImplemented)

        x = T.ones(2).as_subclass(Told)
        assert (T.add(x, 1), x.exp(), x.shape, T.cat([x, x]), x.size()) == ("add", "exp", "shape", "cat", "size")


# -- subclasses ------------------------------------------------------------------------------------------------------------


def plain_subclass_keeps_its_class(T):
    class Mine(T.Tensor):
        pass

    class Deeper(Mine):
        pass

    a, b = T.ones(2).as_subclass(Mine), T.ones(2).as_subclass(Deeper)
    values, indices = a.sort()
    results = (
        a + 1,
        1 + a,
        a + T.ones(2),
        T.ones(2) + a,
        a + b,
        b + a,
        a[0],
        a.sum(),
        a.view(2, 1),
        values,
        indices,
        T.cat([a, b]),
        a.exp_(),
        a.data,
        a.detach(),
    )
    return [type(r).__name__ for r in results], type(a.split(1)[0]).__name__, type(a.shape).__name__, isinstance(a, T.Tensor)


def unrelated_subclasses_do_not_mix(T):
    class A(T.Tensor):
        pass

    class B(T.Tensor):
        pass

    T.ones(2).as_subclass(A) + T.ones(2).as_subclass(B)


def subclass_comes_before_its_parent(T):
    order = []

    class Parent(T.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            order.append(cls.__name__)
            return NotImplemented

    class Child(Parent):
        pass

    a, b = T.ones(2).as_subclass(Parent), T.ones(2).as_subclass(Child)
    try:
        T.add(a, b)
    except TypeError:
        order.append("TypeError")
    return order


def first_answer_wins(T):
    class No(T.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    class Yes(T.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return [t.__name__ for t in types]

    return T.add(T.ones(2).as_subclass(No), T.ones(2).as_subclass(Yes))


def gradients_through_a_subclass(T):
    class Mine(T.Tensor):
        pass

    w = leaf(T, 3)
    x = w.as_subclass(Mine)
    y = weigh(T, x * x + x.exp())
    y.backward()
    return type(y).__name__, type(w.grad).__name__, w.grad


def leaf_of_a_subclass(T):
    class Mine(T.Tensor):
        pass

    w = plain(T, 3).as_subclass(Mine).requires_grad_()
    y = (w.sin() * w).sum()
    y.backward()
    return type(w.grad).__name__, w.grad.as_subclass(T.Tensor), w.is_leaf, type(w.detach()).__name__


def backward_does_not_ask(T):
    cls, log = logging_class(T)
    w = leaf(T, 3).as_subclass(cls)
    y = (w * w).sum()
    log.clear()
    y.backward()
    return [entry[0] for entry in log]


def metadata_is_carried(T):
    class Tagged:
        def __init__(self, data, tag):
            self.data, self.tag = data, tag

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            tags = tuple(a.tag for a in args if hasattr(a, "tag"))
            args = [getattr(a, "data", a) if isinstance(a, cls) else a for a in args]
            return cls(func(*args, **(kwargs or {})), tags)

    a = Tagged(T.ones(2), "a")
    found = T.add(a, T.ones(2))
    return found.tag, found.data, T.matmul(T.ones(2, 2), Tagged(T.ones(2), "b")).tag


def foreign_class_with_table(T):
    handled = {}

    def implements(function):
        def register(mine):
            handled[function] = mine
            return mine

        return register

    class Diagonal:
        def __init__(self, n, value):
            self.n, self.value = n, value

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func not in handled or not all(issubclass(t, (T.Tensor, Diagonal)) for t in types):
                return NotImplemented
            return handled[func](*args, **(kwargs or {}))

    @implements(T.mean)
    def mean(x):
        return x.value / x.n

    @implements(T.stack)
    def stack(xs):
        return [x.value for x in xs]

    d = Diagonal(5, 2)
    found = [T.mean(d), T.stack([d, d])]
    try:
        T.sum(d)
    except TypeError:
        found.append("TypeError")
    return found


def foreign_class_meets_operators(T):
    class Foreign:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, [type(a).__name__ for a in args]

    f = Foreign()
    return T.ones(2) + f, T.ones(2) * f, T.ones(2) @ f, T.relu(f), T.nn.functional.relu(f) if hasattr(T, "nn") and False else None


def foreign_keyword(T):
    class Foreign:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return sorted(kwargs)

    return T.add(T.ones(2), other=Foreign())


def overridden_members_win(T):
    class Mine(T.Tensor):
        @property
        def shape(self):
            return "mine"

        def size(self):
            return "mine too"

        def add(self, other):
            return "and mine"

    x = T.ones(2).as_subclass(Mine)
    return x.shape, x.size(), x.add(1), type(x + 1).__name__


def new_of_a_subclass(T):
    class Mine(T.Tensor):
        @staticmethod
        def __new__(cls, data, tag, *args, **kwargs):
            return super().__new__(cls, data, *args, **kwargs)

        def __init__(self, data, tag):
            self.tag = tag

    x = Mine([1.0, 2.0], "tag")
    return type(x).__name__, x.tag, x.as_subclass(T.Tensor), hasattr(x + 1, "tag")


def made_subclass(T):
    class Mine(T.Tensor):
        pass

    data = T.ones(2)
    x = T.Tensor._make_subclass(Mine, data, True)
    return type(x).__name__, x.requires_grad, x.is_leaf, x.data_ptr() == data.data_ptr()


def subclass_repr(T):
    class Mine(T.Tensor):
        pass

    return repr(T.ones(2).as_subclass(Mine))


def disabled(T):
    cls, log = logging_class(T)
    x = T.ones(2).as_subclass(cls)
    log.clear()
    with T._C.DisableTorchFunctionSubclass() if hasattr(T, "_C") else T.DisableTorchFunctionSubclass():
        y = x + 1
    return type(y).__name__, log


def results_stay_plain(T):
    class Mine(T.Tensor):
        __torch_function__ = T._C._disabled_torch_function_impl

    x = T.ones(2).as_subclass(Mine)
    return [type(y).__name__ for y in (x, x + 1, x.view(1, 2), x.clone(), T.cat([x, x]), x.sum())], (x * 3).tolist()


def subclass_as_parameter_data(T):
    class Mine(T.Tensor):
        pass

    x = T.ones(2).as_subclass(Mine)
    return isinstance(x.requires_grad_(), Mine), type(x.clone()).__name__, type(x.to(T.float64)).__name__


def deep_copied_with_grad(T):
    class Mine(T.Tensor):
        pass

    x = copy.deepcopy(T.ones(2).as_subclass(Mine))
    return type(x).__name__


@questions(
    plain_subclass_keeps_its_class, unrelated_subclasses_do_not_mix, subclass_comes_before_its_parent, first_answer_wins,
    gradients_through_a_subclass, leaf_of_a_subclass, backward_does_not_ask, metadata_is_carried, foreign_class_with_table,
    foreign_class_meets_operators, foreign_keyword, overridden_members_win, new_of_a_subclass, made_subclass, subclass_repr, disabled,
    results_stay_plain, subclass_as_parameter_data,
)  # fmt: skip
def test_subclasses_and_foreign_classes(question):
    """Classes that override operations get PyTorch's treatment."""
    agree(question)


# -- modes -----------------------------------------------------------------------------------------------------------------


def mode_class(T, log, tag=""):
    """A mode that notes what it is asked about."""

    class Noting(T.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append(tag + func.__name__)
            return func(*args, **(kwargs or {}))

    return Noting


def mode_sees_operations_and_factories(T):
    log = []
    x = T.ones(2)
    with mode_class(T, log)():
        y = x + 1
        T.cat([y, y]).exp().sum()
        T.zeros(3)
        T.arange(3)
        x.add_(1)
        y[0]
    x + 1
    return log


def modes_nest(T):
    log = []
    with mode_class(T, log, "outer ")(), mode_class(T, log, "inner ")():
        T.ones(2).exp()
    return log


def mode_replaces(T):
    class Three(T.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return 3 if func is T.add else func(*args, **(kwargs or {}))

    with Three() as mode:
        return T.add(T.ones(2), 1), T.mul(T.ones(2), 2), isinstance(mode, Three)


def mode_comes_before_subclasses(T):
    order = []

    class Mine(T.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            order.append("class")
            return super().__torch_function__(func, types, args, kwargs or {})

    class Mode(T.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            order.append(("mode", [t.__name__ for t in types]))
            return func(*args, **(kwargs or {}))

    x = T.ones(2).as_subclass(Mine)
    with Mode():
        T.exp(x)
    return order


def mode_with_state(T):
    class Counting(T.overrides.TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.n = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.n += 1
            return func(*args, **(kwargs or {}))

    mode = Counting()
    for _ in range(2):
        with mode:
            T.ones(2)
    return mode.n


def mode_after_an_error(T):
    log = []
    try:
        with mode_class(T, log)():
            raise KeyError
    except KeyError:
        T.ones(2)
    return log


def mode_gradients(T):
    log = []
    w = leaf(T, 3)
    with mode_class(T, log)():
        y = (w * w).sum()
    y.backward()
    return log, w.grad


@questions(
    mode_sees_operations_and_factories, modes_nest, mode_replaces, mode_comes_before_subclasses, mode_with_state, mode_after_an_error,
    mode_gradients,
)  # fmt: skip
def test_modes(question):
    """A TorchFunctionMode sees what happens while it is active, the innermost first."""
    agree(question)


# -- torch.overrides -------------------------------------------------------------------------------------------------------


def questions_about_arguments(T):
    class Foreign:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return 1

    class Mine(T.Tensor):
        pass

    o = T.overrides
    things = (T.ones(2), Foreign(), T.ones(2).as_subclass(Mine), 3, None, [Foreign()])
    return [o.has_torch_function((x,)) for x in things[:5]], [o.is_tensor_like(x) for x in things]


def library_function(T):
    def mine(x, factor=2):
        if T.overrides.has_torch_function_unary(x):
            return T.overrides.handle_torch_function(mine, (x,), x, factor=factor)
        return x * factor

    class Foreign:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, kwargs

    class Silent:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    found = [mine(T.ones(2)), mine(Foreign(), 3)]
    try:
        mine(Silent())
    except TypeError:
        found.append("TypeError")
    return found


def wrapped_function(T):
    @T.overrides.wrap_torch_function(lambda x: (x,))
    def mine(x):
        return "plain"

    class Foreign:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    return mine(T.ones(2)), mine(Foreign())


def names(T):
    o = T.overrides
    return (
        [o.resolve_name(f) for f in (T.add, T.Tensor.size, T.linalg.inv, T.ones, T.full_like, T.arange, T.nn.init.uniform_, print)],
        [o.is_tensor_method_or_property(f) for f in (T.Tensor.size, T.Tensor.shape.__get__)],
    )


@questions(questions_about_arguments, library_function, wrapped_function, names)
def test_overrides_module(question):
    """torch.overrides answers as PyTorch's."""
    agree(question)


def test_overridable_functions_are_listed():
    """get_overridable_functions names functions and methods, and they can all be overridden."""
    listed = flambeau.overrides.get_overridable_functions()
    assert flambeau.add in listed[flambeau] and flambeau.Tensor.size in listed[flambeau.Tensor]
    assert flambeau.linalg.inv in functools.reduce(list.__add__, listed.values())
    assert flambeau.overrides.get_testing_overrides()[flambeau.add](1, 2) == -1
    assert flambeau.tensor in flambeau.overrides.get_ignored_functions()


def test_reentrant_dispatch():
    """Inside __torch_function__ a subclass can ask to be asked again."""
    seen = []

    class Mine(flambeau.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            with flambeau.DisableTorchFunctionSubclass():
                if func is flambeau.Tensor.exp and len(seen) == 1:
                    with flambeau.overrides.enable_reentrant_dispatch():
                        return args[0].exp()
                return func(*args, **(kwargs or {}))

    flambeau.ones(2).as_subclass(Mine).exp()
    assert seen == ["exp", "exp"]


def test_operators_and_rooms_are_told_by_the_names_pytorch_tells():
    """A program that prints func.__name__ prints what it prints with PyTorch: 1 - x is __rsub__, 1 + x is add, linalg.norm is linalg_norm."""

    def told(lib):
        names = []

        class Log(lib.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                names.append((func.__name__, len(args)))
                return func(*args, **(kwargs or {}))

        class Sub(lib.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                names.append((func.__name__, len(args)))
                return super().__torch_function__(func, types, args, kwargs)

        def program(x, i):
            found = [1 - x, 1 + x, 2 / x, 2**x, 7 // x, 7 % x, x // 2, x == 1, x != 1, ~i, i & 1, 1 & i, i << 1, 1 << i, x @ x]
            i |= 1
            return [*found, i, lib.linalg.norm(x), lib.fft.fft(x)]

        x, i = lib.arange(4.0).reshape(2, 2) + 1, lib.arange(4)
        with Log():
            found = program(x, i.clone())
        found += program(x.as_subclass(Sub), i.as_subclass(Sub))
        return names, [v.tolist() for v in found]

    assert told(flambeau) == told(torch)


@questions(
    lambda T: T.ones(3)[Seen(T)],
    lambda T: T.ones(3)[0, Seen(T)],
    lambda T: T.ones(3)[(0, (Seen(T), Seen(T)))],
    lambda T: T.ones(3).__setitem__(Seen(T), 1),
    lambda T: T.add(T.ones(2), Seen(T)),
)
def test_objects_in_an_index_and_of_their_own(question):
    """An object inside an index has a say in it, and `__torch_function__` may be a method of the object, which knows itself."""
    agree(question)


class Seen:
    """Stands for a number in an index; answers with its own attribute, so that it has to be asked itself."""

    def __init__(self, T):
        self.answer = 7

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.answer


def test_subclasses_may_have_slots():
    """A class with slots of its own has another layout in memory than Tensor, and is made all the same."""
    for T in (torch, flambeau):

        class Slotted(T.Tensor):
            __slots__ = ("extra",)

        x = Slotted(T.ones(2))
        x.extra = 3
        y = T.ones(2, requires_grad=True).as_subclass(Slotted)
        assert type(x) is Slotted and x.extra == 3 and x.sum().item() == 2
        (y * 2).sum().backward()
        assert type(y) is Slotted


def test_testing_overrides_take_the_arguments_of_their_functions():
    """get_testing_overrides gives functions with the signatures of those they stand for; every name leads back to its function."""
    overrides = flambeau.overrides.get_testing_overrides()
    import inspect

    assert inspect.getfullargspec(overrides[flambeau.mul]).args == ["input", "other"]
    assert inspect.getfullargspec(overrides[flambeau.Tensor.dim]).args == ["self"]
    assert all(override() == -1 for override in overrides.values())
    for function in overrides:
        assert eval(flambeau.overrides.resolve_name(function), {"torch": flambeau}) == function
    with pytest.raises(TypeError, match="expected a sequence"):
        flambeau.overrides.has_torch_function(object())


def test_elements_of_a_subclass_are_of_the_class():
    """Iterating asks about what it is made of, as PyTorch does: the elements are of the subclass, not plain tensors."""
    for T in (torch, flambeau):
        Logged, log = logging_class(T)
        x = T.ones(3).as_subclass(Logged)
        log.clear()
        assert {type(v) for v in x} == {Logged}
        assert [name for name, *_ in log] == ["dim", "unbind"]
