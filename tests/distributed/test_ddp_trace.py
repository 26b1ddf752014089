"""What a profiler shows of a DistributedDataParallel step: collectives by name, on a track of their own, while backward goes on."""

from __future__ import annotations

import json

import pytest
from worlds import ok, run

PROGRAM = """
import json, sys, tempfile
import TORCH as torch, TORCH.distributed as dist
from TORCH import nn
from TORCH.nn.parallel import DistributedDataParallel as DDP
from TORCH.profiler import ProfilerActivity, profile, record_function

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Sequential(*[nn.Linear(400, 400) for _ in range(8)]), bucket_cap_mb=0.7)
x = torch.randn(512, 400)
for step in range(3):
    model(x).sum().backward()
with profile(activities=[ProfilerActivity.CPU]) as seen:
    with record_function("the step"):
        model(x).sum().backward()
    dist.all_reduce(torch.ones(3))
with tempfile.NamedTemporaryFile(suffix=".json") as file:
    seen.export_chrome_trace(file.name)
    events = json.load(open(file.name))["traceEvents"]
print(json.dumps([events, [one.key for one in seen.key_averages()], len(model.reducer.buckets)]))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def traces() -> list[tuple[list[dict], list[str], int]]:
    """By rank: the events, the names in the table, the number of buckets."""
    return [tuple(json.loads(said)) for said in ok(run(PROGRAM))]  # type: ignore[misc]


def sent(events: list[dict]) -> list[dict]:
    return [one for one in events if one.get("ph") == "X" and one["name"] == "gloo:all_reduce"]


def test_collectives_have_their_names(traces) -> None:
    """An all-reduce of a bucket is missing from the trace or from the table."""
    for events, table, buckets in traces:
        assert buckets >= 4
        assert len(sent(events)) == buckets + 1  # and the one that the program made itself
        assert "gloo:all_reduce" in table


def test_on_a_track_of_their_own(traces) -> None:
    """Buckets are sent on the thread that runs backward, or nobody says what the other track is."""
    for events, _, buckets in traces:
        step = next(one for one in events if one.get("ph") == "X" and one["name"] == "the step")
        elsewhere = {one["tid"] for one in sent(events)} - {step["tid"]}
        assert len(elsewhere) == 1
        assert sum(one["tid"] in elsewhere for one in sent(events)) >= buckets - 1  # the last may be sent by who waits for it
        named = {one["tid"]: one["args"]["name"] for one in events if one.get("ph") == "M" and one["name"] == "thread_name"}
        assert "flambeau group" in named[elsewhere.pop()]


def test_sent_while_backward_goes_on(traces) -> None:
    """No bucket is on its way while backward computes: nothing is hidden."""
    for events, _, _ in traces:
        computing = [one for one in events if one.get("ph") == "X" and "Addmm" in one["name"]]
        assert len(computing) >= 8
        last = max(one["ts"] + one["dur"] for one in computing)
        begun_before = [one for one in sent(events) if one["ts"] < last]
        assert begun_before  # how many, is a question of how busy the machine is
        # Some product runs between the beginning and the end of an all-reduce.
        overlaps = [(a, c) for a in sent(events) for c in computing if a["ts"] < c["ts"] + c["dur"] and c["ts"] < a["ts"] + a["dur"]]
        assert overlaps
