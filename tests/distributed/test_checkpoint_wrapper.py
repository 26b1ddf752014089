"""apply_activation_checkpointing: which modules are wrapped, and that nothing else changes, are as in PyTorch. No processes are needed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import flambeau
from flambeau.distributed.algorithms._checkpoint import checkpoint_wrapper as ours

oracle = pytest.importorskip("torch")
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as theirs  # noqa: E402 - after the skip

BOTH = pytest.mark.parametrize("wrap", ["checkpoint_wrapper", "offload_wrapper"])


def model(torch: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(0)
    first, second = (nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))
    return nn.Sequential(first, nn.Sequential(second, nn.Linear(4, 2)), nn.Dropout(0.5))


def story(torch: Any, room: Any, apply: Any) -> list:
    """Names of modules and parameters, the state dict, and two passes' gradients."""
    m = model(torch)
    apply(m)
    found: list[Any] = [[name for name, _ in m.named_modules()], [name for name, _ in m.named_parameters()], list(m.state_dict())]
    for seed in (1, 2):
        torch.manual_seed(seed)
        m.zero_grad()
        m(torch.randn(3, 4)).pow(2).sum().backward()
        found.append([round(float(p.grad.sum()), 4) for p in m.parameters()])
    m.load_state_dict(model(torch).state_dict())
    return found


def same(apply: Any) -> None:
    assert story(flambeau, ours, partial(apply, flambeau, ours)) == story(oracle, theirs, partial(apply, oracle, theirs))


@BOTH
def test_chosen_by_class(wrap: str) -> None:
    """Other modules than those for which check_fn holds are wrapped."""
    same(lambda torch, room, m: room.apply_activation_checkpointing(
        m, checkpoint_wrapper_fn=getattr(room, wrap), check_fn=lambda inner: isinstance(inner, torch.nn.Linear)))  # fmt: skip


def test_everything() -> None:
    """Without a choice each module inside is wrapped, but not the model itself."""
    same(lambda torch, room, m: room.apply_activation_checkpointing(m))


def test_by_size() -> None:
    """A policy is not asked with what PyTorch asks: which modules to look into, and how much is not wrapped yet."""

    def apply(torch: Any, room: Any, m: Any) -> None:
        room.apply_activation_checkpointing(m, auto_wrap_policy=lambda module, recurse, nonwrapped_numel: nonwrapped_numel >= 20)

    same(apply)


@pytest.mark.parametrize("reentrant", [False, True])
def test_both_forms(reentrant: bool) -> None:
    """One of the forms of checkpoint gives other gradients."""

    def apply(torch: Any, room: Any, m: Any) -> None:
        kind = room.CheckpointImpl.REENTRANT if reentrant else room.CheckpointImpl.NO_REENTRANT
        wrap = partial(room.checkpoint_wrapper, checkpoint_impl=kind)
        room.apply_activation_checkpointing(m, wrap, check_fn=lambda inner: isinstance(inner, torch.nn.Sequential))
        m.requires_grad_(True)

    def with_inputs(torch: Any, room: Any) -> list:
        m = model(torch)
        apply(torch, room, m)
        x = torch.ones(3, 4, requires_grad=True)
        m(x).pow(2).sum().backward() if not reentrant else m.eval()(x).pow(2).sum().backward()
        return [round(float(p.grad.sum()), 4) for p in (*m.parameters(), x)] if reentrant else [p.grad is not None for p in m.parameters()]

    assert with_inputs(flambeau, ours) == with_inputs(oracle, theirs)


def test_refusals() -> None:
    """What is no policy is accepted."""
    for torch, room in ((flambeau, ours), (oracle, theirs)):
        with pytest.raises(ValueError, match="callable"):
            room.apply_activation_checkpointing(model(torch), auto_wrap_policy=3)


def test_a_shared_module() -> None:
    """A module in two places has one wrapper in both: PyTorch would wrap what is inside of it twice."""
    shared = flambeau.nn.Sequential(flambeau.nn.Linear(2, 2))
    m = flambeau.nn.Module()
    m.a, m.b = flambeau.nn.Sequential(shared), flambeau.nn.Sequential(shared)
    ours.apply_activation_checkpointing(m, check_fn=lambda inner: isinstance(inner, flambeau.nn.Linear))
    assert m.a[0] is m.b[0]
    assert isinstance(m.a[0][0], ours.CheckpointWrapper)
    assert isinstance(m.a[0][0]._checkpoint_wrapped_module, flambeau.nn.Linear)
