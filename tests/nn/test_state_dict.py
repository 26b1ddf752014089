"""Saving and loading: keys, metadata, hooks, and what is said about what does not fit."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from both import both, refused, warned

import flambeau


def net(torch):
    nn = torch.nn

    class Counted(nn.Linear):
        _version = 3

        def __init__(self):
            super().__init__(2, 2)
            self.register_buffer("count", torch.tensor(0))
            self.register_buffer("hidden", torch.ones(1), persistent=False)

    return nn.Sequential(OrderedDict(a=Counted(), b=nn.Sequential(nn.Linear(2, 1, bias=False))))


@both
def test_saving(torch):
    """A state_dict has other keys, values or metadata."""
    m = net(torch)
    plain = m.state_dict()
    seen = [plain, plain._metadata, type(plain).__name__, m.state_dict(prefix="x."), m.state_dict(keep_vars=True)]
    target = {}
    seen += [m.state_dict(destination=target) is target, target, m.state_dict()["a.weight"].data_ptr() == m.a.weight.data_ptr()]
    given = OrderedDict()
    seen += [warned(lambda: m.state_dict(given, "p.")), list(given)]
    return seen


@both
def test_loading(torch):
    """Loading copies other values, or reports other keys."""
    m, n = net(torch), net(torch)
    n.a.count += 3
    parameter = m.a.weight
    answer = m.load_state_dict(n.state_dict())
    seen = [str(answer), m.a.weight is parameter, m.state_dict()]
    state = n.state_dict()
    del state["a.bias"]
    state["b.0.bias"] = torch.ones(1)
    state["c.d"] = torch.ones(1)
    seen += [tuple(map(list, m.load_state_dict(state, strict=False))), refused(lambda: m.load_state_dict(state), words=True)]
    wrong = n.state_dict()
    wrong["a.weight"], wrong["b.0.weight"] = torch.ones(3, 3), torch.ones(1)
    seen += [refused(lambda: m.load_state_dict(wrong), words=True), refused(lambda: m.load_state_dict(wrong, strict=False), words=True)]
    wrong["a.weight"] = 5
    seen += [refused(lambda: m.load_state_dict(wrong)), refused(lambda: m.load_state_dict(5)), refused(lambda: m.load_state_dict([1]))]
    old = n.state_dict()
    old["a.count"] = torch.tensor([7])
    m.load_state_dict(old)
    seen += [m.a.count, m.load_state_dict(dict(n.state_dict())).missing_keys]
    double = {k: v.double() for k, v in n.state_dict().items()}
    m.load_state_dict(double)
    return [*seen, m.state_dict()]


@both
def test_assigning(torch):
    """load_state_dict(assign=True) does not take over the tensors as PyTorch does."""
    m, n = net(torch), net(torch).double()
    m.a.weight.requires_grad_(False)
    state = n.state_dict()
    m.load_state_dict(state, assign=True)
    seen = [m.a.weight, m.a.bias, m.a.count is state["a.count"], m.a.weight.data_ptr() == n.a.weight.data_ptr()]
    kept = n.state_dict(keep_vars=True)
    m.load_state_dict(kept, assign=True)
    seen += [m.a.weight is n.a.weight, n.a.weight.requires_grad]
    empty = net(torch).to("meta")
    seen += [warned(lambda: empty.load_state_dict(net(torch).state_dict())), empty.a.weight.is_meta]
    empty.load_state_dict(net(torch).state_dict(), assign=True)
    return [*seen, empty.a.weight.is_meta, [p.requires_grad for p in empty.parameters()]]


@both
def test_extra_state(torch):
    """Extra state is not saved, not loaded, or its absence not noticed."""

    class Extra(torch.nn.Linear):
        def __init__(self):
            super().__init__(1, 1)
            self.extra = 0

        def get_extra_state(self):
            return {"extra": self.extra}

        def set_extra_state(self, state):
            self.extra = state["extra"]

    m = torch.nn.Sequential(Extra(), torch.nn.Linear(1, 1))
    m[0].extra = 5
    state = m.state_dict()
    fresh = torch.nn.Sequential(Extra(), torch.nn.Linear(1, 1))
    fresh.load_state_dict(state)
    seen = [list(state), fresh[0].extra]
    plain = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    seen += [
        refused(lambda: plain.load_state_dict(state), words=True),
        refused(lambda: fresh.load_state_dict(plain.state_dict()), words=True),
    ]
    return [*seen, refused(lambda: plain.get_extra_state()), refused(lambda: plain.set_extra_state(1))]


@both
def test_hooks(torch):
    """Hooks around saving and loading are called in another order or with other arguments."""
    m = net(torch)
    log = []
    m.register_state_dict_pre_hook(lambda mod, prefix, keep: log.append(("save pre", prefix, keep)))
    m.b.register_state_dict_post_hook(lambda mod, state, prefix, meta: log.append(("save post", sorted(state), prefix, meta)))
    m.a._register_state_dict_hook(lambda mod, state, prefix, meta: state.pop(prefix + "count") and None)
    m.b._register_state_dict_hook(lambda mod, state, prefix, meta: {"replaced": 1} if prefix == "" else None)
    m.a.register_load_state_dict_pre_hook(
        lambda mod, state, prefix, *rest: log.append(("load pre", type(mod).__name__, sorted(state), prefix, rest))
    )
    m.a._register_load_state_dict_pre_hook(lambda state, prefix, *rest: state.setdefault(prefix + "count", torch.tensor(9)) and None)
    m.register_load_state_dict_post_hook(lambda mod, keys: log.append(("load post", list(keys.missing_keys))))
    state = m.state_dict()
    answer = m.load_state_dict(state)
    seen = [list(state), str(answer), m.a.count, m.b.state_dict()]

    def public(mod, state, prefix, meta):
        return state

    m.register_state_dict_post_hook(public)
    seen += [refused(lambda: m.state_dict()), refused(lambda: m._register_state_dict_hook(public))]
    other = net(torch)
    other.register_load_state_dict_post_hook(lambda mod, keys: keys.missing_keys.clear())
    seen.append(str(other.load_state_dict({"a.weight": torch.ones(2, 2)})))
    other.register_load_state_dict_post_hook(lambda mod, keys: 3)
    seen.append(refused(lambda: other.load_state_dict({})))
    return [seen, log]


@both
def test_versions_reach_the_module_that_loads(torch):
    """A module that mends old checkpoints does not see their version."""
    seen = []

    class Mends(torch.nn.Linear):
        _version = 2

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
            seen.append(local_metadata.get("version"))
            if local_metadata.get("version", 1) < 2 and prefix + "w" in state_dict:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    m = torch.nn.Sequential(Mends(1, 1))
    m.load_state_dict(m.state_dict())
    m.load_state_dict({"0.w": torch.ones(1, 1), "0.bias": torch.ones(1)})
    return [seen, m.state_dict()]


def test_a_prefix_too_many_is_pointed_out():
    """A checkpoint whose keys all start with "module." fails without saying so."""
    m = flambeau.nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match=r"all start with 'module\.'"):
        m.load_state_dict({f"module.{k}": v for k, v in m.state_dict().items()})
    with pytest.raises(RuntimeError, match=r"The keys of the model all start with '0\.'"):
        flambeau.nn.Sequential(m).load_state_dict(m.state_dict())


@both
def test_a_tensor_of_two_elements_does_not_fit_a_scalar(torch):
    """A checkpoint with several elements is loaded into a parameter without dimensions."""
    m = torch.nn.Module()
    m.scale = torch.nn.Parameter(torch.tensor(0.0))
    m.load_state_dict({"scale": torch.tensor([2.0])})
    return [refused(lambda n=n: m.load_state_dict({"scale": torch.ones(n)})) for n in (0, 2, 3)], m.scale


@pytest.fixture
def future():
    yield flambeau.__future__
    flambeau.__future__.set_swap_module_params_on_conversion(False)
    flambeau.__future__.set_overwrite_module_params_on_conversion(False)


@both
def test_swapped_on_conversion_and_on_loading(torch):
    """With torch.__future__.set_swap_module_params_on_conversion, parameters are other objects, have other values or lost their gradient."""
    future = torch.__future__
    try:
        future.set_swap_module_params_on_conversion(True)
        m = net(torch)
        m(torch.ones(1, 2)).sum().backward()
        before, grads = list(m.parameters()), [p.grad for p in m.parameters()]
        m.double()
        seen = [
            [a is b for a, b in zip(before, m.parameters(), strict=True)],
            [a is p.grad for a, p in zip(grads, before, strict=True)],
            [p.grad for p in before],
        ]
        saved = {k: torch.zeros_like(v) for k, v in m.state_dict().items()}
        for assign in (False, True):
            m.load_state_dict(saved, assign=assign)
            seen += [[a is b for a, b in zip(before, m.parameters(), strict=True)], m.state_dict(), [p.requires_grad for p in before]]
        last = torch.nn.Linear(2, 2)
        loss = last(torch.ones(1, 2)).sum()
        last.double()
        seen.append(refused(lambda: loss.backward()))
        with torch.device("meta"):
            bare = torch.nn.Linear(2, 2)
        weight = bare.weight
        seen += [bare.to_empty(device="cpu").weight is weight, weight.device.type, future.get_swap_module_params_on_conversion()]
        return seen
    finally:
        future.set_swap_module_params_on_conversion(False)


@both
def test_overwritten_on_conversion(torch):
    """With torch.__future__.set_overwrite_module_params_on_conversion, converting keeps the old parameters, or changes them."""
    future = torch.__future__
    try:
        future.set_overwrite_module_params_on_conversion(True)
        m = torch.nn.Linear(2, 2)
        m.weight.grad = torch.ones(2, 2)
        before, grad = m.weight, m.weight.grad
        m.double()
        return [
            m.weight is before,
            before.dtype,
            grad.dtype,
            m.weight.dtype,
            m.weight.grad,
            future.get_overwrite_module_params_on_conversion(),
        ]
    finally:
        future.set_overwrite_module_params_on_conversion(False)


@both
def test_swap_tensors(torch):
    """Two swapped tensors have not exchanged data, class, attributes and history, or a swap that cannot be is carried out."""

    class Mine(torch.Tensor):
        pass

    swap = torch.utils.swap_tensors
    a, b = torch.arange(3.0), torch.ones(2, 2).as_subclass(Mine)
    b.note = "here"
    leaf = torch.ones(2, requires_grad=True)
    result = leaf * 2
    other = torch.zeros(3)
    held = [a, leaf]
    swap(a, b)
    swap(leaf, other)
    seen = [held[0].shape, type(a).__name__, a.note, type(b).__name__, b, held[1].requires_grad, other.requires_grad]
    seen.append(refused(lambda: result.sum().backward()))
    import weakref

    watcher = weakref.ref(a)
    return [*seen, refused(lambda: swap(a, b)), watcher() is a]


def test_a_class_says_how_it_is_loaded(future):
    """module_load of a tensor's own class is not asked when a state_dict is loaded by swapping."""

    class Doubled(flambeau.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is flambeau.Tensor.module_load:
                return (args[1].as_subclass(flambeau.Tensor) * 2).as_subclass(cls)
            return super().__torch_function__(func, types, args, kwargs or {})

    m = flambeau.nn.Module()
    m.register_buffer("buffer", flambeau.zeros(2).as_subclass(Doubled))
    future.set_swap_module_params_on_conversion(True)
    held = m.buffer
    m.load_state_dict({"buffer": flambeau.ones(2)})
    assert m.buffer is held and type(held) is Doubled and held.tolist() == [2.0, 2.0]
