"""Sparse tensors in files, in both directions."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
from sparse_oracle import ALL, assert_same, matrix, run

import flambeau

torch = pytest.importorskip("torch")


def objects(lib):
    """One of each kind, with a dtype that is not the default, and one inside a dictionary beside its own values."""
    x = matrix(lib, coalesced=True)
    return {"kinds": [make(lib) for make in ALL.values()], "double": matrix(lib, "float64"), "again": {"x": x, "values": x.values()}}


@pytest.mark.parametrize("weights_only", [True, False])
def test_pytorch_reads_ours_and_we_read_pytorchs(weights_only):
    """Layout, parts and dtype come back, and whether a tensor is coalesced."""
    for there, here in ((torch, flambeau), (flambeau, torch)):
        file = io.BytesIO()
        there.save(run(objects, there), file)
        file.seek(0)
        found = run(lambda t: t.load(file, weights_only=weights_only), here)  # noqa: B023
        mine, other = (found, run(objects, torch)) if here is flambeau else (objects(flambeau), found)
        assert_same(mine["kinds"], other["kinds"], exactly=True)
        assert_same(mine["double"], other["double"], exactly=True)
        assert_same(mine["again"]["x"], other["again"]["x"], exactly=True)
        assert [x.is_coalesced() for x in found["kinds"] if x.is_sparse] == [False, True, False]


def test_python_copies():
    """pickle and deepcopy give equal tensors; a leaf stays a leaf that requires a gradient."""
    for make in ALL.values():
        x = make(flambeau)
        again = pickle.loads(pickle.dumps(x))
        assert repr(again) == repr(x)
        leaf = copy.deepcopy(make(flambeau).requires_grad_())
        assert leaf.requires_grad
        assert leaf.is_leaf


def test_damaged_indices_are_refused():
    """A file whose indices lie outside of the tensor is refused, so that nothing reads beyond memory."""
    bad = torch.sparse_coo_tensor(torch.tensor([[7]]), torch.ones(1), (3,), check_invariants=False)
    file = io.BytesIO()
    torch.save(bad, file)
    file.seek(0)
    with pytest.raises(Exception, match="size is inconsistent"):
        flambeau.load(file, weights_only=True)


def test_state_dicts_have_sparse_buffers():
    """A module keeps a sparse buffer through state_dict, another dtype and load_state_dict."""

    def module(t):
        layer = t.nn.Module()
        layer.register_buffer("graph", matrix(t, coalesced=True))
        return layer

    layer = module(flambeau).double()
    assert layer.graph.dtype is flambeau.float64
    assert layer.graph.is_sparse
    fresh = module(flambeau)
    fresh.graph.zero_()
    fresh.load_state_dict(module(flambeau).state_dict())
    assert_same(fresh.graph, run(module, torch).graph, exactly=True)


def test_sparse_parameters():
    """A sparse leaf can be a Parameter, and prints as one."""
    ours, theirs = (run(lambda t: t.nn.Parameter(matrix(t, coalesced=True)), t) for t in (flambeau, torch))
    assert isinstance(ours, flambeau.nn.Parameter)
    assert repr(ours) == repr(theirs)
