"""Tensors whose class carries operations out: wrappers without memory, subclasses with it, their gradients, copies and files."""

from __future__ import annotations

import copy
import io
from importlib import import_module

import pytest
from history_oracle import agree

torch = pytest.importorskip("torch")


def wrapper_class(T):
    """A wrapper around one tensor, and the list of kernels it was asked for."""
    log: list = []

    class Wrapper(T.Tensor):
        @staticmethod
        def __new__(cls, inner):
            made = T.Tensor._make_wrapper_subclass(
                cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype, device=inner.device,
                requires_grad=inner.requires_grad,
            )  # fmt: skip
            made.held = inner.detach()
            return made

        __torch_function__ = T._C._disabled_torch_function_impl

        def __repr__(self, *, tensor_contents=None):
            return f"Wrapper({self.held})"

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            log.append(str(func))
            unwrap = lambda v: v.held if isinstance(v, Wrapper) else type(v)(map(unwrap, v)) if type(v) in (list, tuple) else v  # noqa: E731
            wrap = lambda v: Wrapper(v) if isinstance(v, T.Tensor) else type(v)(map(wrap, v)) if type(v) in (list, tuple) else v  # noqa: E731
            out = wrap(func(*unwrap(args), **{k: unwrap(v) for k, v in (kwargs or {}).items()}))
            return import_module(f"{T.__name__}.utils._python_dispatch").return_and_correct_aliasing(func, args, kwargs or {}, out)

    return Wrapper, log


def plain(value):
    """The tensors inside wrappers."""
    if hasattr(value, "held"):
        return plain(value.held)
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


QUESTIONS = {
    "pointwise": lambda T, x, p: (x + p, p * x, x.exp(), -x, x**2, 1 - x),
    "products": lambda T, x, p: (x @ p.t(), T.nn.functional.linear(x, p), T.nn.functional.linear(p, x)),
    "folds": lambda T, x, p: (x.sum(), x.mean(1), x.max(), x.var(1), x.norm()),
    "views": lambda T, x, p: (x.t(), x.view(6), x[0], x[:, 1:], x.unsqueeze(0), x.expand(4, 2, 3), x.flatten()),
    "choices": lambda T, x, p: (T.where(x > p, x, p), x.clamp(0, 1), T.maximum(x, p)),
    "several": lambda T, x, p: (x.sort(1), x.split(2, 1), x.unbind(0), x.topk(2)),
    "lists": lambda T, x, p: (T.cat([x, p]), T.stack([x, x]), T.cat([p, x], 1)),
    "rows": lambda T, x, p: (T.softmax(x, 1), T.log_softmax(x, 0), T.nn.functional.layer_norm(x, (3,)), T.nn.functional.gelu(x)),
    "losses": lambda T, x, p: (T.nn.functional.mse_loss(x, p), T.nn.functional.cross_entropy(x, T.tensor([0, 2]))),
    "casts": lambda T, x, p: (x.double(), x.to(T.int64), x.half().float(), x.bool()),
    "copies": lambda T, x, p: (x.clone(), x.contiguous(), x.t().contiguous(), copy.deepcopy(x)),
    "likes": lambda T, x, p: (T.zeros_like(x), T.ones_like(x), x.new_zeros(2), T.full_like(x, 2.0)),
    "in place": lambda T, x, p: (x.add_(1), x.mul_(p), x.clamp_(max=3), x.zero_()),
    "setitem": lambda T, x, p: (x.__setitem__(0, 5.0), x.__setitem__((slice(None), 1), p[:, 0]), x),
    "index": lambda T, x, p: (x[T.tensor([1, 0])], x[x > 2], x.index_select(0, T.tensor([1]))),
    "numbers": lambda T, x, p: (float(x.sum()), x.sum().item(), bool(x[0, 0] > 0), len(x), x.shape, x.stride(), x.numel()),
    "conv": lambda T, x, p: T.nn.functional.conv1d(x.unsqueeze(0), T.ones(4, 2, 2)),
    "out": lambda T, x, p: T.add(x, p, out=T.empty_like(x)),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_operations_on_wrappers(question) -> None:
    """An operation on a tensor without memory fails, or gives something else than on the tensor inside."""

    def asked(T):
        Wrapper, _ = wrapper_class(T)
        return plain(question(T, Wrapper(T.arange(6.0).reshape(2, 3) + 1), T.ones(2, 3) * 2))

    agree(asked)


GRADIENTS = {
    "pointwise": lambda T, x, p: (x.exp() * p + x.sigmoid() / (x + 1)).sum(),
    "saved result": lambda T, x, p: (x.tanh() * x.sqrt()).sum(),
    "products": lambda T, x, p: (x @ p.t()).pow(2).sum(),
    "linear": lambda T, x, p: T.nn.functional.linear(p, x, x[:, 0]).pow(2).mean(),
    "views": lambda T, x, p: (x.t()[1:].reshape(-1) * x.view(6)[:4]).sum(),
    "softmax": lambda T, x, p: (T.softmax(x, 1) * p * x).sum(),
    "layer_norm": lambda T, x, p: (T.nn.functional.layer_norm(x, (3,)) * p * x).sum(),
    "cat": lambda T, x, p: (T.cat([x, p]) ** 2).sum() + T.stack([x, x]).prod(0).sum(),
    "var": lambda T, x, p: x.var(1).sum() + x.norm() + x.logsumexp(1).sum(),
    "max": lambda T, x, p: x.max(1).values.sum() + x.amax() + x.sort(0).values[0].sum(),
    "in place": lambda T, x, p: (x * 2).mul_(p).add_(x).exp_().sum(),
    "write through a view": lambda T, x, p: _written(x * 1),
    "cross_entropy": lambda T, x, p: T.nn.functional.cross_entropy(x, T.tensor([0, 2])),
    "conv": lambda T, x, p: T.nn.functional.conv1d(x.unsqueeze(0), T.arange(16.0).reshape(4, 2, 2)).pow(2).sum(),
    "attention": lambda T, x, p: T.nn.functional.scaled_dot_product_attention(x[None], p[None], x[None]).sum(),
}


def _written(x):
    x[0] = x[1] * 2
    return (x * x).sum()


@pytest.mark.parametrize("question", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients_of_wrappers(question) -> None:
    """A gradient is missing, wrong, or no wrapper."""

    def asked(T):
        Wrapper, _ = wrapper_class(T)
        x = Wrapper((T.arange(6.0).reshape(2, 3) + 1).requires_grad_())
        loss = question(T, x, (T.arange(6.0).reshape(2, 3) + 3) / 4)
        loss.backward()
        return plain(loss.detach()), plain(x.grad), type(x.grad) is Wrapper, loss.grad_fn is not None

    agree(asked, rtol=1e-5, atol=1e-6)


def test_a_model_with_wrapped_weights_trains() -> None:
    """Linear layers whose weights are wrappers do not learn as plain ones do."""

    def question(T):
        Wrapper, _ = wrapper_class(T)
        T.manual_seed(0)
        model = T.nn.Sequential(T.nn.Linear(4, 8), T.nn.GELU(), T.nn.Linear(8, 2))
        for layer in (model[0], model[2]):
            layer.weight = T.nn.Parameter(Wrapper(layer.weight.detach()))
        optimizer = T.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
        x, y = T.randn(16, 4), T.randint(0, 2, (16,))
        losses = []
        for _ in range(5):
            loss = T.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(plain(loss.detach()))
        return losses, plain([p.detach() for p in model.parameters()]), type(model[0].weight) is Wrapper

    agree(question, rtol=1e-4, atol=1e-5)


def test_a_class_with_memory_of_its_own() -> None:
    """A subclass over real memory is not asked, or asked about the wrong thing."""

    def question(T):
        log = []

        class Own(T.Tensor):
            @staticmethod
            def __new__(cls, data):
                return T.Tensor._make_subclass(cls, data, data.requires_grad)

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                log.append((str(func), [t.__name__ for t in types]))
                return super().__torch_dispatch__(func, types, args, kwargs)

        x = Own(T.ones(3, requires_grad=True))
        y = (x * 2).sum()
        y.backward()
        return [name for name, _ in log if "detach" not in name][:2], y.detach(), x.grad.sum()

    agree(question)


def test_who_is_asked_first() -> None:
    """Subclasses are not asked before their parents, or modes not before both."""

    def question(T):
        order = []

        def made(name, parent):
            def dispatch(cls, func, types, args=(), kwargs=None):
                order.append(name)
                return NotImplemented if name != "A" else args[0]

            new = staticmethod(lambda cls, data: T.Tensor._make_subclass(cls, data))
            return type(name, (parent,), {"__new__": new, "__torch_dispatch__": classmethod(dispatch)})

        A = made("A", T.Tensor)
        B = made("B", A)
        T.add(A(T.ones(1)), B(T.ones(1)))
        return order

    agree(question)


def test_errors_of_wrappers() -> None:
    """What cannot be done with a tensor without memory is refused as in PyTorch."""

    def without(T):
        class Foo(T.Tensor):
            pass

        T.Tensor._make_wrapper_subclass(Foo, (2, 2))

    def numpy(T):
        wrapper_class(T)[0](T.ones(2)).numpy()

    def tolist(T):
        wrapper_class(T)[0](T.ones(2)).tolist()

    def ints(T):
        T.Tensor._make_wrapper_subclass(wrapper_class(T)[0], (2,), dtype=T.int64, requires_grad=True)

    def declines(T):
        class Declines(T.Tensor):
            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                return NotImplemented

        Declines(T.ones(2)) + 1

    for question in (without, numpy, tolist, ints, declines):
        agree(question)


def test_large_wrappers_cost_nothing() -> None:
    """A wrapper allocates what it shows."""

    def question(T):
        x = T.Tensor._make_wrapper_subclass(wrapper_class(T)[0], (10**12,))
        return x.shape, x.dtype == T.float32, x.numel(), x.device.type

    agree(question)


def test_versions_and_storages_follow_views() -> None:
    """A write to a view of a wrapper is not seen at the wrapper."""

    def question(T):
        x = wrapper_class(T)[0](T.zeros(4))
        before = x._version
        view = x[1:3]
        view.add_(1)
        same = view.untyped_storage()._cdata == x.untyped_storage()._cdata
        return x._version > before, plain(x), same

    agree(question)


def test_flattening() -> None:
    """is_traceable_wrapper_subclass does not know who says what it is made of."""

    def question(T):
        home = import_module(f"{T.__name__}.utils._python_dispatch")
        Wrapper, _ = wrapper_class(T)

        class Two(Wrapper):
            def __tensor_flatten__(self):
                return ["held"], None

            @staticmethod
            def __tensor_unflatten__(parts, meta, size, stride):
                return Two(parts["held"])

        two = Two(T.ones(2))
        asked = home.is_traceable_wrapper_subclass
        return asked(two), asked(T.ones(1)), asked(Wrapper(T.ones(1))), plain(home.transform_subclass(two, lambda name, part: part * 3))

    agree(question)


_ = io


@pytest.mark.parametrize("name", ["alias", "is_strides_like_format", "view_as_real_copy", "_unsafe_view", "lift_fresh_copy", "to_dtype"])
def test_a_kernel_that_is_called_by_its_name_is_asked_for_as_itself(name: str) -> None:
    """torch.ops.aten.<...> on a wrapper is asked for as what it is made of here, or loses its base."""

    def question(T):
        aten, (Wrapper, log) = T.ops.aten, wrapper_class(T)
        x = Wrapper(T.arange(6.0).reshape(2, 3))
        call = {
            "alias": lambda: aten.alias(x),
            "is_strides_like_format": lambda: aten.is_strides_like_format(x, T.channels_last),
            "view_as_real_copy": lambda: aten.view_as_real_copy(Wrapper(T.ones(2, dtype=T.complex64))),
            "_unsafe_view": lambda: aten._unsafe_view.default(x, [6]),
            "lift_fresh_copy": lambda: aten.lift_fresh_copy(x),
            "to_dtype": lambda: aten.to.dtype(x, T.float64),  # has no kernel: what it is made of is asked for
        }[name]
        del log[:]
        found = call()
        return [kernel for kernel in log if "detach" not in kernel], plain(found), getattr(found, "_base", None) is x

    agree(question)


def test_a_wrapper_shows_the_numbers_that_its_class_gives() -> None:
    """repr() of a wrapper whose class has no __repr__ fails, or shows other numbers."""

    def question(T):
        class Quiet(wrapper_class(T)[0]):
            __repr__ = T.Tensor.__repr__

        return [repr(Quiet(t)) for t in (T.arange(4.0).reshape(2, 2) / 3, T.tensor(1.5), T.tensor([True, False]), T.zeros(0))]

    agree(question)
