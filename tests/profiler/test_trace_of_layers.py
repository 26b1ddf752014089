"""A trace of the layers people use: an arrow for every node of backward, PyTorch's names on every block, nothing after the end."""

from __future__ import annotations

import pytest

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.profiler import profile
from flambeau.tracing import chrome

oracle = pytest.importorskip("torch")
# PyTorch has an operation for each kind of recurrent layer, and composes attention in Python.
OURS = {"recurrence", "recurrence_backward", "multi_head_attention_forward"}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.drop = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.2)
        self.embed, self.norm = nn.Embedding(10, 16), nn.LayerNorm(16)
        self.attend, self.rnn = nn.MultiheadAttention(16, 2, batch_first=True), nn.GRU(16, 16, batch_first=True)
        self.group, self.head = nn.GroupNorm(2, 4), nn.Linear(4 * 16 + 16, 3)

    def forward(self, picture, ids):
        x = self.group(F.max_pool2d(self.bn(self.conv(picture)).relu(), 2)).flatten(1)
        y = self.norm(self.embed(ids))
        y = self.rnn(y + self.attend(y, y, y)[0])[0].softmax(-1).mean(1)
        return self.head(self.drop(torch.cat([x, F.gelu(y).log_softmax(-1)], 1)))


@pytest.fixture(scope="module")
def trace():
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    picture, ids, labels = torch.randn(2, 1, 8, 8), torch.randint(0, 10, (2, 5)), torch.tensor([0, 2])
    kept = []
    with profile(record_shapes=True, profile_memory=True, with_modules=True) as prof:
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(picture, ids), labels)
            loss.backward()
            optimizer.step()
            kept.append(loss)
    kept.clear()  # lets go of memory after the profile
    recorder = prof.profiler.recorder
    return chrome.trace(prof.events(), recorder), (recorder.last - recorder.first) / 1e3


def test_every_node_of_backward_has_an_arrow(trace):
    """Each node that backward ran has one arrow, from the operation that recorded it, in the first step as in the later ones."""
    spans = [e for e in trace[0]["traceEvents"] if e["ph"] == "X"]
    nodes = {e["args"]["Sequence number"] for e in spans if e["name"].startswith("autograd::engine") and "Sequence number" in e["args"]}
    made = [e["args"]["Sequence number"] for e in spans if e["name"].startswith("aten::") and "Sequence number" in e["args"]]
    assert len(nodes) > 60 and len(made) == len(set(made))
    arrows = [e for e in trace[0]["traceEvents"] if e.get("cat") == "fwdbwd"]
    assert len(arrows) == 2 * len(nodes)
    lost = nodes - set(made)  # made inside an operation that is one block: the copy in a reshape
    assert {e["name"] for e in spans if e["args"].get("Sequence number") in lost and e["name"].endswith("d0")} <= {
        "CloneBackward0",
        "autograd::engine::evaluate_function: CloneBackward0",
    }


def test_blocks_have_pytorchs_names(trace):
    """An operation on the time line has a name that PyTorch's has too, and people look for."""
    names = {e["name"].removeprefix("aten::") for e in trace[0]["traceEvents"] if e["ph"] == "X" and e["name"].startswith("aten::")}
    strange = {name for name in names - OURS if not hasattr(oracle.ops.aten, name)}
    assert not strange
    assert {"conv2d", "convolution", "batch_norm", "max_pool2d", "bernoulli_", "embedding", "layer_norm", "convolution_backward"} <= names


def test_nothing_comes_after_the_end(trace):
    """Memory that is let go when the profile is over does not stretch the time line."""
    events, end = trace[0]["traceEvents"], trace[1]
    assert max(e["ts"] + e.get("dur", 0) for e in events) <= end + 1


def test_a_finished_profile_keeps_no_memory():
    """What was alive when the profile ended, or only as a view, can be given back although the profile is kept."""
    with profile(profile_memory=True) as prof:
        whole = torch.randn(5000) + 1
        view = whole[:10]
        del whole
        other = view * 2
    ledger = prof.profiler.recorder.ledger
    assert ledger.changes and not ledger.live and not ledger.lingering
    noted = len(ledger.changes)
    del view, other
    assert len(ledger.changes) == noted
