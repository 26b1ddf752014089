"""Containers: what can be done with Sequential, ModuleList, ModuleDict, ParameterList and ParameterDict."""

from __future__ import annotations

from collections import OrderedDict

from both import both, clean, refused, warned


@both
def test_sequential(torch):
    """A Sequential is not the list of modules PyTorch's is."""
    nn = torch.nn

    def made():
        return nn.Sequential(nn.Linear(2, 2), nn.Identity(), nn.Linear(2, 3))

    named = nn.Sequential(OrderedDict(first=nn.Linear(2, 2), second=nn.Identity()))
    m = made()
    seen = [clean(repr(x)) for x in (m, named, m[1:], m[-1], named[:1], m + made(), m * 2, 2 * made())]
    m[0] = nn.Identity()
    del m[1]
    m.append(nn.Linear(3, 3)).extend([nn.Identity()]).insert(1, nn.Linear(2, 2))
    seen += [
        clean(repr(m)),
        list(m._modules),
        len(m),
        [type(x).__name__ for x in m],
        clean(repr(m.pop(-2))),
        clean(repr(m.pop(slice(0, 2)))),
        list(m._modules),
    ]
    m += made()
    seen.append(clean(repr(m)))
    m = made()
    m *= 2
    del m[1:3]
    named.append(nn.Identity())
    seen += [clean(repr(m)), list(named._modules)]
    del named[0]
    named.insert(-1, nn.Linear(1, 1))
    seen += [list(named._modules), made()(torch.ones(1, 2)), nn.Sequential()(3)]
    m = made()
    seen += [
        refused(call)
        for call in (
            lambda: m[5], lambda: m[-4], lambda: m.__setitem__(7, nn.Identity()), lambda: m + 3, lambda: m * 0, lambda: m * "a", lambda: m.insert(9, nn.Identity()),
            lambda: m.insert(0, 3), lambda: m.append(3), lambda: nn.Sequential(3), lambda: m.pop(9), lambda: m.__iadd__([1]), lambda: m["a"], lambda: m.__delitem__(9),
        )
    ]  # fmt: skip
    return seen


@both
def test_module_list(torch):
    """A ModuleList is not the list of modules PyTorch's is."""
    nn = torch.nn
    m = nn.ModuleList([nn.Linear(1, i + 1) for i in range(4)])
    seen = [clean(repr(m)), len(m), clean(repr(m[1:3])), clean(repr(m[-1])), clean(repr(m + nn.ModuleList([nn.Identity()])))]
    m[0] = nn.Identity()
    m.insert(1, nn.Identity())
    m.append(nn.Identity()).extend(nn.ModuleList([nn.Linear(2, 2)]))
    m += [nn.Identity()]
    del m[2]
    del m[0:2]
    seen += [
        clean(repr(m)),
        list(m._modules),
        clean(repr(m.pop(0))),
        [type(x).__name__ for x in m],
        clean(repr(m.pop(slice(0, 2)))),
        list(m._modules),
    ]
    seen += [
        refused(call)
        for call in (
            lambda: m[9], lambda: m[-9], lambda: m.append(3), lambda: m.extend(3), lambda: m(1), lambda: m.pop(9), lambda: m["a"], lambda: m.__delitem__(9),
            lambda: nn.ModuleList(3), lambda: nn.ModuleList([3]),
        )
    ]  # fmt: skip
    seen.append(list(nn.ModuleList([nn.Linear(1, 1)]).state_dict()))
    return seen


@both
def test_module_dict(torch):
    """A ModuleDict is not the dictionary of modules PyTorch's is."""
    nn = torch.nn
    m = nn.ModuleDict({"b": nn.Identity(), "a": nn.Linear(1, 1)})
    m["c"] = nn.Identity()
    m.update([("d", nn.Identity()), ["a", nn.Linear(2, 2)]])
    m.update(nn.ModuleDict({"e": nn.Identity()}))
    seen = [clean(repr(m)), list(m.keys()), [k for k, _ in m.items()], len(list(m.values())), len(m), "a" in m, "z" in m, list(m)]
    seen += [clean(repr(m.pop("a"))), list(m), refused(lambda: m["a"]), refused(lambda: m.pop("a")), refused(lambda: m.update(3))]
    seen += [
        refused(lambda: m.update([3])),
        refused(lambda: m.update([("a", 1, 2)])),
        refused(lambda: m.__setitem__("x", 3)),
        refused(lambda: nn.ModuleDict(3)),
    ]
    del m["b"]
    seen.append(list(m))
    m.clear()
    return [
        *seen,
        len(m),
        refused(lambda: m(1)),
        refused(lambda: m.__setitem__("a.b", nn.Identity())),
        refused(lambda: m.__setitem__("keys", nn.Identity())),
    ]


@both
def test_parameter_list(torch):
    """A ParameterList is not the list PyTorch's is."""
    nn = torch.nn
    m = nn.ParameterList([torch.ones(1), nn.Parameter(torch.zeros(2)), 3, "text"])
    m.append(torch.ones(3)).extend([nn.Parameter(torch.ones(1))])
    m += [torch.ones(4)]
    m[0] = torch.zeros(5)
    m[-1] = nn.Parameter(torch.ones(2))
    seen = [
        clean(repr(m)),
        len(m),
        list(m.state_dict()),
        clean(repr(m[1:3])),
        m[2],
        m[-2],
        [type(x).__name__ for x in m],
        [n for n, _ in m.named_parameters()],
    ]
    seen += [
        refused(call)
        for call in (
            lambda: m[99],
            lambda: m.extend(3),
            lambda: m.extend(torch.ones(2)),
            lambda: m(),
            lambda: m.__setitem__(50, 1),
            lambda: m["a"],
        )
    ]
    return [*seen, list(dict(m.named_parameters()).values())]


@both
def test_parameter_dict(torch):
    """A ParameterDict is not the dictionary PyTorch's is."""
    nn = torch.nn
    m = nn.ParameterDict({"b": torch.ones(1), "a": nn.Parameter(torch.zeros(2)), "text": "x"})
    m["d"] = torch.ones(3)
    m.update(OrderedDict(z=torch.ones(1), y=torch.ones(2)))
    m.update([["k", torch.ones(1)]])
    seen = [
        clean(repr(m)),
        list(m),
        list(reversed(m)),
        list(m.keys()),
        [k for k, _ in m.items()],
        len(list(m.values())),
        len(m),
        "a" in m,
        "q" in m,
        m["text"],
    ]
    seen += [
        m.get("a"),
        m.get("q"),
        m.get("q", 5),
        m.setdefault("new", torch.ones(1)),
        m.setdefault("a", 3),
        m.pop("a"),
        list(m),
        m.popitem(),
        list(m),
    ]
    seen += [
        clean(repr(m.copy())),
        clean(repr(m | nn.ParameterDict({"n": torch.ones(1)}))),
        clean(repr(m.fromkeys(["u", "v"], torch.ones(1)))),
    ]
    m |= nn.ParameterDict({"w": torch.ones(1)})
    seen += [list(m), list(m.state_dict())]
    del m["d"]
    seen += [
        list(m),
        [
            refused(call)
            for call in (
                lambda: m["q"],
                lambda: m.pop("q"),
                lambda: m.update(3),
                lambda: m.update([3]),
                lambda: m.update([(1, 2, 3)]),
                lambda: m(1),
                lambda: m[3],
            )
        ],
    ]
    m.clear()
    return [
        *seen,
        len(m),
        list(m.state_dict()),
        warned(lambda: nn.Container(a=nn.Identity())) if hasattr(nn, "Container") else ["FutureWarning"],
    ]
