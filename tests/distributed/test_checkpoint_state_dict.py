"""get_state_dict and set_state_dict give and take what PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint.state_dict as theirs

import flambeau
import flambeau.distributed.checkpoint.state_dict as ours

BOTH = (SimpleNamespace(torch=flambeau, sd=ours), SimpleNamespace(torch=torch, sd=theirs))
pytestmark = pytest.mark.filterwarnings("ignore:Getting submodules only:FutureWarning", "ignore:Passing model_state_dict:FutureWarning")


def make(lib: Any) -> tuple[Any, Any]:
    """A model with buffers and a frozen parameter, and its optimizer, the same numbers in both libraries."""
    nn = lib.torch.nn
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model[2].bias.requires_grad_(False)
    fill(model, lib)
    return model, lib.torch.optim.AdamW(model.parameters(), lr=0.1)


def fill(model: Any, lib: Any) -> None:
    with lib.torch.no_grad():
        for number, value in enumerate([*model.parameters(), *model.buffers()]):
            value.copy_((lib.torch.arange(value.numel()).reshape(value.shape) + number).to(value.dtype))


def train(model: Any, optimizer: Any, lib: Any) -> None:
    for step in (1.0, 2.0):
        for value in model.parameters():
            value.grad = value.detach() * step + 1 if value.requires_grad else None
        optimizer.step()
        optimizer.zero_grad()


def plain(value: Any) -> Any:
    """Nested state as numbers."""
    if hasattr(value, "tolist"):
        return tuple(value.shape), str(value.dtype), [round(n, 4) for n in value.detach().double().flatten().tolist()]
    if isinstance(value, dict):
        return {key: plain(inside) for key, inside in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inside) for inside in value]
    return value


def outcome(action: Callable[[Any], Any], lib: Any) -> Any:
    """What an action gives, or the kind of error and the beginning of what it says."""
    try:
        return plain(action(lib))
    except Exception as problem:
        return type(problem).__name__, str(problem).partition(".")[0].partition(":")[0]


def check(action: Callable[[Any], Any]) -> None:
    found, expected = (outcome(action, lib) for lib in BOTH)
    assert found == expected


OPTIONS: list[dict[str, Any]] = [
    {},
    {"ignore_frozen_params": True},
    {"flatten_optimizer_state_dict": True},
    {"full_state_dict": True},
    {"cpu_offload": True},
    {"full_state_dict": True, "cpu_offload": True},
    {"broadcast_from_rank0": True},
]


@pytest.mark.parametrize("trained", [False, True], ids=["new", "trained"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_states_are_pytorchs(options: dict[str, Any], trained: bool) -> None:
    """Names, order, values, with every option; an optimizer that has no state yet makes it, and keeps the parameters as they are."""

    def action(lib: Any) -> Any:
        model, optimizer = make(lib)
        if trained:
            train(model, optimizer, lib)
        found = lib.sd.get_state_dict(model, optimizer, options=lib.sd.StateDictOptions(**options))
        return [
            *found,
            [list(part) for part in found],
            optimizer.param_groups[0]["lr"],
            [value.grad is None for value in model.parameters()],
        ]

    check(action)


@pytest.mark.parametrize("keep", [True, False])
def test_states_of_submodules_are_pytorchs(keep: bool) -> None:
    """The old argument `submodules` chooses entries by the module they belong to."""

    def action(lib: Any) -> Any:
        model, _ = make(lib)
        return lib.sd.get_model_state_dict(model, submodules={model[0]}, options=lib.sd.StateDictOptions(keep_submodule_prefixes=keep))

    check(action)


@pytest.mark.parametrize("options", OPTIONS[:-1], ids=str)
def test_a_state_goes_into_another_model(options: dict[str, Any]) -> None:
    """What one model and optimizer say, others take: training goes on with the same numbers."""

    def action(lib: Any) -> Any:
        model, optimizer = make(lib)
        train(model, optimizer, lib)
        chosen = lib.sd.StateDictOptions(**options, strict=not options.get("ignore_frozen_params"))
        model_state, optimizer_state = lib.sd.get_state_dict(model, optimizer, options=chosen)
        other, _ = make(lib)
        other_optimizer = lib.torch.optim.AdamW(other.parameters(), lr=0.5)
        found = lib.sd.set_state_dict(
            other, other_optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state, options=chosen
        )
        train(other, other_optimizer, lib)
        return [list(found.missing_keys), list(found.unexpected_keys), other.state_dict(), other_optimizer.state_dict()]

    check(action)


def groups_in_another_order(lib: Any) -> Any:
    model, _ = make(lib)
    adam = lib.torch.optim.Adam
    first = adam([{"params": model[0].parameters(), "lr": 1.0}, {"params": model[2].parameters(), "lr": 2.0}])
    second = adam([{"params": model[2].parameters(), "lr": 3.0}, {"params": model[0].parameters(), "lr": 4.0}])
    lib.sd.set_optimizer_state_dict(model, second, lib.sd.get_optimizer_state_dict(model, first))
    return second.state_dict()


def groups_that_are_not_there(lib: Any) -> Any:
    model, _ = make(lib)
    adam = lib.torch.optim.Adam
    part = adam([{"params": model[0].parameters()}])
    lib.sd.set_optimizer_state_dict(model, adam(model.parameters()), lib.sd.get_optimizer_state_dict(model, part))


def flat_into_one_group(lib: Any) -> Any:
    model, _ = make(lib)
    adam = lib.torch.optim.Adam
    flat = lib.sd.StateDictOptions(flatten_optimizer_state_dict=True)
    two = adam([{"params": model[0].parameters(), "lr": 1.0}, {"params": model[2].parameters(), "lr": 1.0}])
    one = adam([*model[2].parameters(), *model[0].parameters()], lr=5.0)
    lib.sd.set_optimizer_state_dict(model, one, lib.sd.get_optimizer_state_dict(model, two, options=flat), options=flat)
    return one.state_dict()["param_groups"]


def flat_groups_that_differ(lib: Any) -> Any:
    model, _ = make(lib)
    adam = lib.torch.optim.Adam
    flat = lib.sd.StateDictOptions(flatten_optimizer_state_dict=True)
    two = adam([{"params": model[0].parameters(), "lr": 1.0}, {"params": model[2].parameters(), "lr": 2.0}])
    one = adam([*model[0].parameters(), *model[2].parameters()])
    lib.sd.set_optimizer_state_dict(model, one, lib.sd.get_optimizer_state_dict(model, two, options=flat), options=flat)


def two_optimizers(lib: Any) -> Any:
    model, _ = make(lib)
    pair = [lib.torch.optim.SGD(model[0].parameters(), lr=1.0, momentum=0.5), lib.torch.optim.Adam(model[2].parameters(), lr=2.0)]
    state = lib.sd.get_optimizer_state_dict(model, pair)
    others = [lib.torch.optim.SGD(model[0].parameters(), lr=3.0, momentum=0.1), lib.torch.optim.Adam(model[2].parameters(), lr=4.0)]
    lib.sd.set_optimizer_state_dict(model, others, state)
    return [state, *(other.state_dict() for other in others)]


def without_state(lib: Any) -> Any:
    model, _ = make(lib)
    sgd = lib.torch.optim.SGD(model.parameters(), lr=1.0)
    state = lib.sd.get_optimizer_state_dict(model, sgd)
    other = lib.torch.optim.SGD(model.parameters(), lr=2.0)
    lib.sd.set_optimizer_state_dict(model, other, state)
    return [state, other.state_dict()]


def missing_state(lib: Any) -> Any:
    model, optimizer = make(lib)
    state = lib.sd.get_optimizer_state_dict(model, optimizer)
    state["state"].pop("0.weight")
    lib.sd.set_optimizer_state_dict(model, optimizer, state)


def missing_state_not_strict(lib: Any) -> Any:
    model, optimizer = make(lib)
    train(model, optimizer, lib)
    state = lib.sd.get_optimizer_state_dict(model, optimizer)
    state["state"].pop("0.weight")
    lib.sd.set_optimizer_state_dict(model, optimizer, state, options=lib.sd.StateDictOptions(strict=False))
    return sorted(optimizer.state_dict()["state"])[-1]


def empty_optimizer_state(lib: Any) -> Any:
    model, optimizer = make(lib)
    lib.sd.set_optimizer_state_dict(model, optimizer, {})


def no_optimizers(lib: Any) -> Any:
    model, _ = make(lib)
    return [lib.sd.get_state_dict(model, []), lib.sd.get_optimizer_state_dict(model, [])]


def missing_in_model(lib: Any) -> Any:
    model, _ = make(lib)
    lib.sd.set_model_state_dict(model, {"0.weight": lib.torch.ones(3, 2)})


def missing_in_model_not_strict(lib: Any) -> Any:
    model, _ = make(lib)
    given = {"0.weight": lib.torch.ones(3, 2), "zz": lib.torch.ones(1)}
    found = lib.sd.set_model_state_dict(model, given, options=lib.sd.StateDictOptions(strict=False))
    return [list(found.missing_keys), list(found.unexpected_keys), model.state_dict()]


def by_module(lib: Any) -> Any:
    model, _ = make(lib)
    lib.sd.set_model_state_dict(model, {model[0]: {"weight": lib.torch.full((3, 2), 9.0)}}, options=lib.sd.StateDictOptions(strict=False))
    return model.state_dict()


def tied(lib: Any) -> Any:
    nn = lib.torch.nn

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 2)
            self.b = self.a
            self.c = nn.Linear(2, 2)
            self.c.weight = self.a.weight

    model = Tied()
    fill(model, lib)
    optimizer = lib.torch.optim.Adam(model.parameters())
    found = []
    for flat in (False, True):
        options = lib.sd.StateDictOptions(flatten_optimizer_state_dict=flat)
        states = lib.sd.get_state_dict(model, optimizer, options=options)
        done = lib.sd.set_state_dict(model, optimizer, model_state_dict=states[0], optim_state_dict=states[1], options=options)
        found += [*states, list(done.missing_keys), optimizer.state_dict()]
    return found


def extra_state(lib: Any) -> Any:
    class Extra(lib.torch.nn.Linear):
        count = 0

        def get_extra_state(self) -> int:
            return self.count

        def set_extra_state(self, state: int) -> None:
            self.count = state

    model, other = (lib.torch.nn.Sequential(Extra(1, 1)) for _ in range(2))
    fill(model, lib)
    model[0].count = 5
    lib.sd.set_model_state_dict(other, lib.sd.get_model_state_dict(model))
    return [other[0].count, other.state_dict()]


def learning_rate_is_a_tensor(lib: Any) -> Any:
    model, _ = make(lib)
    optimizer = lib.torch.optim.Adam(model.parameters(), lr=lib.torch.tensor(0.25))
    return [lib.sd.get_optimizer_state_dict(model, optimizer), model.state_dict()]


CASES = [
    groups_in_another_order, groups_that_are_not_there, flat_into_one_group, two_optimizers, without_state, missing_state,
    missing_state_not_strict, empty_optimizer_state, no_optimizers, missing_in_model, missing_in_model_not_strict, by_module, tied, extra_state,
    learning_rate_is_a_tensor,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_cases_are_pytorchs(case: Callable[[Any], Any]) -> None:
    """Groups, several optimizers, missing and shared parameters: the same states and the same errors."""
    check(case)


def test_options_that_differ_in_one_group_are_refused() -> None:
    """Two learning rates cannot become that of one group: PyTorch takes the first parameter's and says nothing, we name both."""
    with pytest.raises(RuntimeError, match=r"same saved param_group value. But 2.weight.lr is 2.0 while 0.weight's is 1.0"):
        flat_groups_that_differ(BOTH[0])


@pytest.mark.filterwarnings("ignore:torch.compile")
def test_wrappers_leave_no_trace_in_names() -> None:
    """A compiled model's state has the names of the model, and is taken under them; what was given is not changed."""
    model, _ = make(BOTH[0])
    compiled = flambeau.compile(model)
    state = ours.get_model_state_dict(compiled)
    assert list(state) == list(model.state_dict())
    before = dict(state)
    other, _ = make(BOTH[0])
    assert not ours.set_model_state_dict(flambeau.compile(other), state).missing_keys
    assert state == before


def test_a_parameter_that_is_not_the_models_is_named() -> None:
    """An optimizer of another model is refused."""
    model, _ = make(BOTH[0])
    _, optimizer = make(BOTH[0])
    with pytest.raises(KeyError, match="not in the model"):
        ours.get_optimizer_state_dict(model, optimizer)
