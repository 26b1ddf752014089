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
