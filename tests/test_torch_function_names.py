"""Which of its functions an operation was called by, as `__torch_function__` and modes are told."""

from __future__ import annotations

import pytest

import flambeau

torch = pytest.importorskip("torch")


# -- which of its functions an operation was called by -----------------------------------------------------------------------


CALLS = """
x+y  x-y  1-x  1+x  x*y  x/y  x//y  1//x  x%y  1%x  2**x  x@y  -x  abs(x)  ~n  x==y  x<y  n&1  1&n  n>>1  1<<n  x[0]
x.add(y)  x.add_(y)  torch.add(x,y)  x.abs()  torch.abs(x)  torch.absolute(x)  x.absolute()  x.absolute_()  torch.relu(x)  F.relu(x)  x.relu()
torch.special.erf(x)  torch.erf(x)  x.erf()  torch.special.expit(x)  torch.sigmoid(x)  torch.linalg.det(m)  torch.det(m)  m.det()  torch.fft.fft(x)
torch.split(x,1)  x.split(1)  torch.norm(x)  x.norm()  torch.unique(x)  x.unique()  F.softmax(x,0)  torch.softmax(x,0)  x.softmax(0)
F.conv2d(i,i)  torch.conv2d(i,i)  F.linear(m,m)  torch.where(x>0,x,y)  x.where(x>0,y)  torch.polygamma(1,x)  x.polygamma(1)  x.bernoulli_(0.5)
torch.bernoulli(x)  x.clip(0)  torch.clamp(x,0)  torch.numel(x)  torch.is_complex(x)  torch.detach(x)  torch.zeros_like(x)  torch.kl_div(x,y)
m.t_()  m.addmm_(m,m)  m.addbmm_(t,t)  m.renorm(1,0,1)  m.renorm_(1,0,1)  torch.nn.init.uniform_(x)  torch.nn.init.kaiming_uniform_(m)
torch.sparse_coo_tensor([[0],[1]],[1.],check_invariants=True)  torch.autograd.grad(w,w)  x.register_hook  x.apply_(abs)  x.to_sparse()
"""


@pytest.mark.parametrize("call", CALLS.replace("\n", "  ").strip().split("  "))
def test_what_was_called_is_told(call):
    """A method, the function of the same name and its other names cannot be told apart by a `__torch_function__`."""

    def told(T):
        names = []

        class Telling(T.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                names.append(T.overrides.resolve_name(func))
                return func(*args, **(kwargs or {}))

        w = T.ones((), requires_grad=True) * 1
        m, n = T.ones(2, 2), T.tensor([1, 2])
        given = {"x": T.ones(2), "y": T.ones(2), "n": n, "m": m, "t": T.ones(1, 2, 2), "i": T.ones(1, 1, 2, 2), "w": w}
        with Telling():
            eval(call, given | {"torch": T, "F": T.nn.functional})
        return names[:1] if "(x>0" not in call else names[-1:]

    assert told(flambeau) == told(torch)


@pytest.mark.parametrize("kind", ["Tensor", "FloatTensor", "own"])
def test_a_tensor_made_of_another_keeps_its_history(kind):
    """MyTensor(x) is x under another class: the same memory, and gradients go through; torch.Tensor(x) of a subclass is plain."""
    for t in (flambeau, torch):

        class Own(t.Tensor):
            pass

        cls = Own if kind == "own" else getattr(t, kind)
        x = t.ones(2, requires_grad=True)
        made = cls(x)
        (made * 3).sum().backward()
        assert x.grad.tolist() == [3, 3] and made.grad_fn.name() == "AliasBackward0" and made.data_ptr() == x.data_ptr()
        assert type(cls(Own(t.ones(2)))) is (Own if kind == "own" else t.Tensor)
        assert type(t.nn.Parameter(made)) is (Own if kind == "own" else t.nn.Parameter) and t.nn.Parameter(made).is_leaf


def test_hooks_of_a_tensor_can_be_seen():
    """What register_hook registered is found by those who copy or send a tensor."""
    for t in (flambeau, torch):
        x = t.ones(2, requires_grad=True)
        assert not x._backward_hooks
        x.register_hook(abs)
        assert list(x._backward_hooks.values()) == [abs]
        with pytest.warns(UserWarning, match="backward hook"):
            t.utils.hooks.warn_if_has_hooks(x)


def test_redispatch_function_asks_about_what_is_inside():
    """Calling the function again from its own __torch_function__ went on without end."""
    seen = []
    for T in (flambeau, torch):

        class Logged(T.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None, T=T):
                seen[-1].append(func.__name__)
                return T.overrides.redispatch_function(func, types, args, kwargs)

        def scaled(a, b, T=T):
            if T.overrides.has_torch_function((a, b)):
                return T.overrides.handle_torch_function(scaled, (a, b), a, b)
            return a * b + 1

        x = T.tensor([3.0]).as_subclass(Logged)
        seen.append([])
        results = scaled(x, x), x + x, x.sum(0), x // 2
        seen[-1] += [(type(r).__name__, r.tolist()) for r in results]
    assert [s for s in seen[0] if s != "floor_divide"] == [s for s in seen[1] if s != "floor_divide"]
