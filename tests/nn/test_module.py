"""Module: registering, listing, moving, copying and showing, compared with PyTorch's."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
from both import both, clean, refused, warned

import flambeau
from flambeau import nn


def net(torch):
    """A small model with everything in it: shared layers, a missing bias, buffers of both kinds."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4, bias=False)
            self.again = self.first
            self.scale = nn.Parameter(torch.ones(4))
            self.register_buffer("steps", torch.zeros(1, dtype=torch.int64))
            self.register_buffer("cache", torch.ones(2), persistent=False)
            self.register_buffer("nothing", None)
            self.empty = None

        def forward(self, x):
            return self.second(self.first(x)) * self.scale

    return nn.Sequential(Block(), nn.Identity(), Block())


@both
def test_a_tree_is_listed_in_pytorchs_order(torch):
    """named_* and their friends list other names, or in another order."""
    m = net(torch)
    m[0].register_module("none", None)
    return [
        [n for n, _ in m.named_parameters()],
        [n for n, _ in m.named_parameters(prefix="x", remove_duplicate=False)],
        [n for n, _ in m[0].named_parameters(recurse=False)],
        [n for n, _ in m.named_buffers()],
        [n for n, _ in m.named_modules()],
        [n for n, _ in m.named_modules(prefix="p", remove_duplicate=False)],
        [n for n, _ in m[0].named_children()],
        [type(c).__name__ for c in m.children()],
        len(list(m.modules())),
        len(list(m.modules(remove_duplicate=False))),
        len(list(m.parameters())),
        len(list(m.buffers(recurse=False))),
        list(m.parameters()),
    ]


@both
def test_names_that_cannot_be_registered(torch):
    """A wrong name or value is accepted, or refused with another exception."""
    nn = torch.nn
    m = nn.Linear(2, 2)
    t, p = torch.ones(2), nn.Parameter(torch.ones(2))
    m.plain = 3
    grown = nn.Parameter(torch.ones(2)) * 2
    return [
        refused(call)
        for call in (
            lambda: m.register_parameter("a.b", p),
            lambda: m.register_parameter("", p),
            lambda: m.register_parameter(3, p),
            lambda: m.register_parameter("forward", p),
            lambda: m.register_parameter("plain", p),
            lambda: m.register_parameter("fine", t),
            lambda: m.register_parameter("fine", grown),
            lambda: m.register_buffer("a.b", t),
            lambda: m.register_buffer("", t),
            lambda: m.register_buffer(None, t),
            lambda: m.register_buffer("weight", t),
            lambda: m.register_buffer("fine", 3),
            lambda: m.add_module("a.b", nn.Identity()),
            lambda: m.add_module("", nn.Identity()),
            lambda: m.add_module(1, nn.Identity()),
            lambda: m.add_module("weight", nn.Identity()),
            lambda: m.add_module("fine", 3),
            lambda: setattr(m, "weight", t),
            lambda: setattr(m, "weight", 3),
            lambda: setattr(m, "weight", nn.Identity()),
            lambda: nn.Module(3),
            lambda: nn.Module(a=3),
            lambda: m.nothing_of_the_kind,
            lambda: delattr(m, "nothing_of_the_kind"),
            lambda: m.train(3),
            lambda: nn.Module()(1),
        )
    ] + [sorted(m._parameters), sorted(m._buffers)]


@both
def test_attributes_move_between_the_registries(torch):
    """An attribute that is assigned another kind of value stays where it was, or is lost."""
    nn = torch.nn
    m = nn.Module()
    seen = []

    def note():
        seen.append([list(m._parameters), list(m._buffers), list(m._modules), m.__dict__.get("x", 0) if "x" not in dir(m) else ""])

    m.x = 1
    note()
    m.x = nn.Parameter(torch.ones(1))
    note()
    m.x = None
    note()
    del m.x
    m.register_buffer("x", torch.ones(1), persistent=False)
    note()
    m.x = torch.zeros(3)
    note()
    m.x = nn.Identity()
    note()
    seen.append(sorted(m._non_persistent_buffers_set))
    m.x = nn.Parameter(torch.ones(2))
    note()
    m.y = torch.ones(1)  # no buffer: nobody asked for one
    note()
    m.z = nn.Buffer(torch.ones(2), persistent=False)
    m.w = nn.Buffer(torch.ones(2))
    note()
    return [*seen, list(m.state_dict()), isinstance(m.z, nn.Buffer), isinstance(m.y, nn.Buffer), m.x, m.w]


@both
def test_before_init(torch):
    """Assigning before super().__init__() has another outcome."""
    nn = torch.nn

    def early(value):
        class Early(nn.Module):
            def __init__(self):
                self.x = value() if callable(value) else value

        return Early()

    class Forgot(nn.Module):
        def __init__(self):
            pass

        def forward(self, x):
            return x

    return [
        refused(lambda: early(lambda: nn.Parameter(torch.ones(1)))),
        refused(lambda: early(nn.Identity)),
        early(3).x,
        refused(lambda: early(3).register_buffer("b", torch.ones(1))),
        refused(lambda: early(3).register_parameter("b", None)),
        refused(lambda: Forgot()(1)),
        early(lambda: torch.ones(1)).x,
    ]


@both
def test_reprs(torch):
    """A model is printed differently."""
    nn = torch.nn

    class Extra(nn.Module):
        def __init__(self, lines):
            super().__init__()
            self.lines = lines
            self.inner = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.Identity(), nn.Linear(2, 2, bias=False)])

        def extra_repr(self):
            return self.lines

    models = [
        net(torch),
        Extra("a=1"),
        Extra("a=1\nb=2"),
        Extra(""),
        nn.ModuleList(),
        nn.ModuleDict({"x": nn.Identity()}),
        nn.Bilinear(2, 3, 4),
        nn.ParameterList([torch.ones(2), 3]),
        nn.ParameterDict({"b": torch.ones(2, 3), "a": "text"}),
        nn.Sequential(nn.ModuleList([nn.Sequential(nn.Linear(1, 1))] * 3)),
        nn.Module(),
        nn.LazyLinear(3),
        nn.Linear(2, 2).weight,
        nn.UninitializedParameter(),
    ]
    return [clean(repr(m)) for m in models]


@both
def test_switches_reach_the_whole_tree(torch):
    """train, eval, requires_grad_, zero_grad or apply miss a module."""
    m = net(torch)
    m.eval()
    seen = [x.training for x in m.modules()]
    m[0].train()
    seen += [x.training for x in m.modules()]
    m.requires_grad_(False)
    seen += [p.requires_grad for p in m.parameters()]
    m.requires_grad_()
    m(torch.ones(2, 4)).sum().backward()
    grads = [p.grad.clone() for p in m.parameters()]
    m.zero_grad(set_to_none=False)
    grads += [p.grad for p in m.parameters()]
    m.zero_grad()
    order = []
    m.apply(lambda x: order.append(type(x).__name__))
    return [seen, grads, [p.grad is None for p in m.parameters()], order, m.apply(lambda x: None) is m]


@both
def test_moving(torch):
    """to(), float(), ... convert other tensors than PyTorch does, or lose the identity of parameters or gradients."""
    seen = []
    for move in (
        lambda m: m.double(),
        lambda m: m.half(),
        lambda m: m.bfloat16(),
        lambda m: m.double().float(),
        lambda m: m.to(torch.float64),
        lambda m: m.to("cpu"),
        lambda m: m.to("cpu", torch.float64),
        lambda m: m.to(device="cpu", dtype=torch.float16),
        lambda m: m.to(torch.ones(1, dtype=torch.float64)),
        lambda m: m.to(torch.complex64),
        lambda m: m.type(torch.float64),
        lambda m: m.to("meta"),
        lambda m: m.to_empty(device="meta"),
        lambda m: m.cpu(),
        lambda m: m.to(memory_format=torch.channels_last),
        lambda m: m.to(torch.int64),
        lambda m: m.to("meta").to("cpu"),
        lambda m: m.to("nonsense"),
        lambda m: m.to(),
    ):
        m = net(torch)
        m(torch.ones(2, 4)).sum().backward()
        parameter, grad = m[0].scale, m[0].scale.grad
        answer = refused(lambda move=move, m=m: move(m) is m)
        seen.append([answer, m[0].scale is parameter, [t for t in m.state_dict(keep_vars=True).values() if not t.is_meta]])
        seen.append([m[0].scale.grad.dtype, m[0].scale.device.type, m[0].scale.grad is grad, m[0].again is m[0].first, m[0].cache.dtype])
    return seen


@both
def test_paths(torch):
    """get_submodule and the others find something else, or refuse otherwise."""
    m = net(torch)
    m[0].plain = torch.ones(1)
    return [
        m.get_submodule("") is m,
        m.get_submodule("0.first") is m[0].first,
        m.get_parameter("2.scale") is m[2].scale,
        m.get_buffer("0.steps"),
        refused(lambda: m.get_submodule("0.third")),
        refused(lambda: m.get_submodule("0.scale")),
        refused(lambda: m.get_parameter("0.steps")),
        refused(lambda: m.get_parameter("0.none")),
        refused(lambda: m.get_buffer("0.scale")),
        refused(lambda: m.get_buffer("0.plain")),
        refused(lambda: m.set_submodule("", torch.nn.Identity())),
        refused(lambda: m.set_submodule("0.first", 3)),
        refused(lambda: m.set_submodule("0.new", torch.nn.Identity(), strict=True)),
        refused(lambda: m.set_submodule("0.scale", torch.nn.Identity())),
        refused(lambda: m.set_submodule("5.scale", torch.nn.Identity())),
        m.set_submodule("0.first", torch.nn.Identity()),
        m.set_submodule("0.new", torch.nn.Identity()),
        m.set_submodule("3", torch.nn.Identity()),
        clean(repr(m)),
    ]


@both
def test_copies(torch):
    """A deep copy or a pickle is not the same model, or shares tensors with the first."""
    m = net(torch)
    m[0].first.note = {"a": 1}
    seen = []
    for made in (copy.deepcopy(m), m):
        seen += [
            dict(made.state_dict()),
            made[0].again is made[0].first,
            made[0].first.note,
            made[0].weight if hasattr(made[0], "weight") else 0,
        ]
        seen += [made[0].first.weight is made[0].first._parameters["weight"], sorted(made[0]._non_persistent_buffers_set)]
    other = copy.deepcopy(m)
    other[0].scale.data.fill_(7)
    shallow = copy.copy(m[0])
    shallow.scale = torch.nn.Parameter(torch.zeros(4))
    return [*seen, m[0].scale, shallow._parameters is m[0]._parameters, m[0].scale is shallow.scale]


def test_pickles():
    """A model does not come back from a pickle as it was, or old pickles without newer dictionaries are refused."""
    m = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2, bias=False))
    m[0].register_buffer("b", flambeau.ones(1), persistent=False)
    back = pickle.loads(pickle.dumps(m))
    assert repr(back) == repr(m) and back[1].bias is None and flambeau.equal(back[0].weight, m[0].weight)
    assert back[0].weight is back[0]._parameters["weight"] and "b" not in back.state_dict()
    back[0]._parameters["weight"] = nn.Parameter(flambeau.zeros(3, 2))
    assert not back[0].weight.any()
    state = m[0].__getstate__()
    assert type(state["_parameters"]) is dict and "weight" not in state
    for name in ("_forward_pre_hooks", "_non_persistent_buffers_set", "_load_state_dict_post_hooks", "_backward_pre_hooks"):
        del state[name]
    old = nn.Linear.__new__(nn.Linear)
    old.__setstate__(state)
    assert old(flambeau.ones(1, 2)).shape == (1, 3) and "b" in old.state_dict()


def test_the_dictionaries_are_the_truth():
    """A library that writes to _parameters, _buffers or _modules is not seen by the attributes."""
    m = nn.Linear(2, 2)
    w, b = nn.Parameter(flambeau.zeros(2, 2)), flambeau.ones(3)
    m._parameters["weight"] = w
    m._buffers["b"] = b
    m._modules["inner"] = inner = nn.Identity()
    assert m.weight is w and m.b is b and m.inner is inner
    assert m._parameters.pop("weight") is w and not hasattr(m, "weight")
    m._parameters.update(weight=w, v=w)
    m._parameters |= {"u": w}
    assert m.u is w and m.v is w and m._parameters.setdefault("v", None) is w
    assert m._parameters.popitem() == ("u", w) and not hasattr(m, "u")
    m._buffers.clear()
    assert not hasattr(m, "b")
    m._parameters = {"other": w}
    assert m.other is w and not hasattr(m, "weight") and not hasattr(m, "bias")
    m.__dict__["_buffers"] = {"raw": b}
    assert m.raw is b
    with pytest.raises(KeyError):
        m._parameters.pop("nothing")
    assert m._parameters.pop("nothing", 3) == 3


@both
def test_what_the_class_has_is_not_hidden(torch):
    """A module or parameter whose name is that of a method or class attribute hides it, or is hidden otherwise than in PyTorch."""

    class Named(torch.nn.Module):
        layer = None

        def forward(self, x):
            return x + 1

    m = Named()
    m._modules["forward"] = torch.nn.Identity()
    m.layer = torch.nn.Identity()
    return [m(1), m.layer, list(m._modules), refused(lambda: setattr(m, "train", torch.nn.Parameter(torch.ones(1)))), m.train() is m]


def test_a_copy_by_hand_is_whole():
    """Modules copied through __dict__, as some libraries do, lose their parameters or read stale ones."""
    m = nn.Linear(2, 2)

    class Own(nn.Linear):
        def __deepcopy__(self, memo):
            made = type(self).__new__(type(self))
            memo[id(self)] = made
            for name, value in self.__dict__.items():
                setattr(made, name, copy.deepcopy(value, memo))
            return made

        def __getstate__(self):
            return self.__dict__.copy()

    for made in (copy.deepcopy(Own(2, 2)), pickle.loads(pickle.dumps(m))):
        made._parameters["weight"] = w = nn.Parameter(flambeau.zeros(2, 2))
        assert made.weight is w and [n for n, _ in made.named_parameters()] == ["weight", "bias"]
    replica = m._replicate_for_data_parallel()
    assert not list(replica.parameters()) and list(m.parameters())


def test_modules_die_with_their_last_user():
    """A module is kept alive by a cycle: memory of a model is given back only when the collector runs."""
    gc.disable()
    try:
        m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        refs = [weakref.ref(x) for x in m.modules()] + [weakref.ref(p) for p in m.parameters()]
        m(flambeau.ones(1, 2)).sum().backward()
        del m
        assert [ref() for ref in refs] == [None] * len(refs)
    finally:
        gc.enable()


def test_compile_says_that_it_is_missing():
    """Module.compile pretends to have compiled."""
    with pytest.warns(UserWarning, match="no compiler yet"):
        nn.Identity().compile()


@both(tolerance=1e-5)
def test_training_by_hand(torch):
    """A small network, trained for a few steps, ends up with other weights."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 1)])
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.calls += 1
            for layer in self.layers[:-1]:
                x = layer(x).tanh()
            return self.layers[-1](x)

    model = Net()
    x = torch.randn(16, 3)
    target = x.sum(1, keepdim=True).sin()
    losses = []
    for _ in range(10):
        loss = (model(x) - target).square().mean()
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
        losses.append(loss.detach())
    return [losses, model.state_dict()]


@both
def test_dir(torch):
    """dir() shows numbers, or misses parameters."""
    m = torch.nn.Sequential(torch.nn.Linear(2, 2))
    names = dir(m[0])
    return [x in names for x in ("weight", "bias", "forward", "training", "0")] + ["0" in dir(m), "0" in dir(torch.nn.ModuleList([m]))]


@both
def test_call_super_init(torch):
    """Module in the middle of several bases does not hand arguments on."""

    class Other:
        def __init__(self, a=0, **kwargs):
            super().__init__(**kwargs)
            self.a = a

    class Mixed(torch.nn.Module, Other):
        call_super_init = True

        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.lin = torch.nn.Linear(1, 1)

    class Plain(torch.nn.Module, Other):
        pass

    return [Mixed(a=3).a, refused(lambda: Plain(a=3)), list(Mixed(a=1).state_dict())]


@both
def test_lazy_modules(torch):
    """A lazy layer does not become the layer it stands for, or allows what it cannot know yet."""
    m = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.LazyLinear(2, bias=False))
    before = [clean(repr(m)), list(m.state_dict()), torch.nn.parameter.is_lazy(m[0].weight), m[0].has_uninitialized_params()]
    refusals = [refused(lambda: m[0].weight.shape), refused(lambda: m[0].weight + 1), refused(lambda: m[0].weight.sum()), m[0].weight.dtype]
    refusals += [refused(lambda: m.share_memory()), warned(lambda: torch.nn.LazyLinear(2))]
    copied = copy.deepcopy(m)
    m.double()
    torch.manual_seed(1)
    out = m(torch.ones(2, 5, dtype=torch.float64))
    copied.load_state_dict(m.state_dict())
    other = torch.nn.LazyLinear(3)
    refusals.append(refused(lambda: torch.nn.Linear(4, 3).load_state_dict(other.state_dict())))
    return [
        before,
        refusals,
        out,
        clean(repr(m)),
        type(m[0]).__name__,
        dict(copied.state_dict()),
        copied(torch.ones(2, 5)),
        clean(repr(copied[0])),
    ]


@both
def test_linear_layers(torch):
    """Linear, Bilinear or Identity compute, start or refuse differently."""
    nn = torch.nn
    x = torch.arange(12.0).reshape(4, 3)
    layers = [
        nn.Linear(3, 5),
        nn.Linear(3, 2, bias=False),
        nn.Linear(3, 2, dtype=torch.float64),
        nn.Bilinear(3, 3, 4),
        nn.Bilinear(3, 3, 2, bias=False),
    ]
    seen = [dict(layer.state_dict()) for layer in layers]
    out = layers[0](x)
    out.square().sum().backward()
    y = layers[3](x, x + 1)
    y.square().sum().backward()
    seen += [out, layers[0].weight.grad, layers[0].bias.grad, y, layers[3].weight.grad, layers[3].bias.grad]
    seen += [layers[0](x[0]), layers[0](x.reshape(2, 2, 3)), layers[1](x), layers[1](x.reshape(1, 4, 1, 3)), layers[4](x[None], x[None])]
    seen += [nn.Identity(3, a=4)(x), nn.Linear(3, 0)(x), nn.Linear(3, 4, device="meta").weight.is_meta]
    seen += [
        refused(lambda: layers[0](x[:, :2])),
        refused(lambda: layers[2](x)),
        refused(lambda: layers[3](x, x[:2])),
        refused(lambda: nn.Bilinear(0, 1, 2)),
    ]
    return seen


@both
def test_a_class_with_its_own_getattr_is_asked(torch):
    """Libraries override __getattr__ to see who uses which parameter, buffer or child; a change of class brings it, and takes it away."""
    nn, asked = torch.nn, []

    class Watching(nn.Module):
        def __getattr__(self, name):
            value = super().__getattr__(name)
            if isinstance(value, nn.Parameter | nn.Module) or name == "mean":
                asked.append(name)
            return value

    class Layer(Watching):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(2))
            self.register_buffer("mean", torch.zeros(2))
            self.inner = nn.Linear(2, 2, bias=False)

        def forward(self, x):
            return self.inner((x - self.mean) * self.scale)

    class WatchingLinear(Watching, nn.Linear):
        pass

    class Delegating(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.module, name)

    layer = Layer()
    x = torch.ones(1, 2)
    seen = [layer(x).shape, list(asked)]
    for change in (copy.deepcopy, copy.copy, lambda m: m.to(torch.float64)):
        asked.clear()
        changed = change(layer)
        changed(x.to(changed.scale.dtype))
        seen.append(list(asked))
    layer._parameters["scale"] = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    layer.scale = nn.Parameter(torch.full((2,), 3.0, dtype=torch.float64))
    seen += [layer.scale, sorted(layer.state_dict()), "scale" in layer.__dict__, hasattr(layer, "missing")]
    linear = nn.Linear(2, 2)
    for kind in (WatchingLinear, nn.Linear, WatchingLinear):
        asked.clear()
        linear.__class__ = kind
        linear(x)
        seen.append(list(asked))
    around = Delegating(nn.Linear(3, 4))
    seen += [around.out_features, tuple(around.weight.shape), tuple(around.module.bias.shape), hasattr(around, "nothing")]
    del layer.inner
    seen += [hasattr(layer, "inner"), refused(lambda: layer.inner)]
    return seen


@both
def test_lazy_modules_take_shapes_from_inputs_and_checkpoints(torch):
    """A lazy module of one's own is not initialised by its first input or by a state_dict, or stays lazy."""
    nn = torch.nn

    class Scale(nn.Module):
        def forward(self, x):
            return x * self.weight

    class LazyScale(nn.modules.lazy.LazyModuleMixin, Scale):
        cls_to_become = Scale

        def __init__(self):
            super().__init__()
            self.weight = nn.UninitializedParameter()
            self.register_buffer("mean", nn.UninitializedBuffer())

        def initialize_parameters(self, x):
            if self.has_uninitialized_params():
                self.weight.materialize(x.shape[-1])
                torch.nn.init.ones_(self.weight)
                self.mean.materialize((1,))

    import warnings

    warnings.simplefilter("ignore")
    a, b, c = LazyScale(), LazyScale(), LazyScale()
    unshaped = a.state_dict()
    b.load_state_dict(unshaped)
    seen = [b.has_uninitialized_params(), type(unshaped["weight"]).__name__, refused(lambda: torch.nn.utils.spectral_norm(LazyScale()))]
    seen += [a(torch.ones(2, 3)), type(a).__name__, len(a._forward_pre_hooks), a.state_dict()["weight"]]
    c.load_state_dict({"weight": torch.ones(4), "mean": torch.ones(1)})
    seen += [c.has_uninitialized_params(), type(c).__name__, c(torch.ones(4)), type(c).__name__, a(torch.ones(3))]
    return seen


@both
def test_a_register_buffer_of_ones_own_may_not_know_of_persistent(torch):
    """A Buffer cannot be assigned to a module whose register_buffer takes a name and a tensor only."""

    class Old(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bar = torch.nn.Buffer(torch.ones(2))
            self.bar = torch.zeros(2)

        def register_buffer(self, name, value):
            super().register_buffer(name, value, True)

    return Old().state_dict()
