"""torch.ao.pruning: masks, and what is done with them, against PyTorch's."""

from __future__ import annotations

import copy
from importlib import import_module

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import flambeau  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def both(question):
    """The same question asked of both frameworks; the answers are equal."""
    expected, found = (question(t, import_module(f"{t.__name__}.ao.pruning")) for t in (torch, flambeau))
    assert found == expected


def model(t):
    made = t.nn.Sequential(t.nn.Linear(12, 12), t.nn.ReLU(), t.nn.Sequential(t.nn.Linear(12, 12)))
    with t.no_grad():
        for i, p in enumerate(made.parameters()):
            p.copy_(t.from_numpy(np.random.default_rng(i).standard_normal(tuple(p.shape)).astype(np.float32)))
    return made


OPTIONS = [
    {}, {"sparsity_level": 0.3}, {"sparse_block_shape": (2, 3)}, {"sparse_block_shape": (1, 1), "sparsity_level": 0.7}, {"norm": 1, "zeros_per_block": 2},
    {"sparsity_level": 1.0}, {"sparsity_level": 0.0}, {"sparsity_level": 1.0, "zeros_per_block": 2}, {"sparse_block_shape": (4, 1), "zeros_per_block": 1},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_masks_by_norm(options):
    """A weight is masked elsewhere than by PyTorch, before or after the mask is squashed."""

    def question(t, pruning):
        net = model(t)
        sparsifier = pruning.WeightNormSparsifier(**options)
        sparsifier.prepare(net, [{"tensor_fqn": "0.weight"}, {"tensor_fqn": "2.0.weight", "sparsity_level": 0.5}])
        sparsifier.step()
        masked = [net[0].weight.tolist(), net[2][0].weight.tolist(), sorted(net.state_dict())]
        text = repr(sparsifier)
        sparsifier.squash_mask(params_to_keep=("sparsity_level",))
        return masked, text, net[0].weight.tolist(), net[0].sparse_params, type(net[0].weight).__name__, sorted(net.state_dict())

    both(question)


def test_what_is_kept_and_taken_back():
    """A state_dict of a sparsifier does not carry its masks into another model."""

    def question(t, pruning):
        first, second = (pruning.WeightNormSparsifier(sparsity_level=0.4, sparse_block_shape=(1, 2)) for _ in range(2))
        one, two = model(t), model(t)
        first.prepare(one, None)
        first.step()
        second.prepare(two, None)
        state = copy.deepcopy(first.state_dict())
        second.load_state_dict(state)
        groups = [{k: str(v) for k, v in g.items() if k != "module"} for g in second.groups]
        return (
            groups,
            two[0].weight.tolist(),
            two[2][0].weight.tolist(),
            sorted(first.state),
            two[0].parametrizations.weight[0].mask.tolist(),
        )

    both(question)


def test_names_of_modules():
    """The name of a module in a model, or the module of a name, is another."""

    def question(t, pruning):
        net = model(t)
        return [
            pruning.module_to_fqn(net, net[2][0]),
            pruning.module_to_fqn(net, t.nn.ReLU()),
            type(pruning.fqn_to_module(net, "2.0")).__name__,
        ]

    both(question)


@pytest.mark.parametrize("options", [{"zeros_per_block": 9}, {"zeros_per_block": -1}, {"norm": 3}], ids=str)
def test_options_that_make_no_sense(options):
    """They are taken, or refused with another type of exception."""

    def question(t, pruning):
        try:
            sparsifier = pruning.WeightNormSparsifier(**options)
            sparsifier.prepare(model(t), None)
            sparsifier.step()
        except Exception as problem:
            return type(problem)
        return None

    both(question)


def test_a_module_takes_part_in_training_with_its_mask():
    """What is masked gets a gradient, or the rest gets none."""

    def question(t, pruning):
        net = model(t)
        sparsifier = pruning.WeightNormSparsifier()
        sparsifier.prepare(net, None)
        sparsifier.step()
        net(t.ones(2, 12)).sum().backward()
        return (net[0].parametrizations.weight.original.grad == 0).tolist()

    both(question)
