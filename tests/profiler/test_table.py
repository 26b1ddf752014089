"""The table of a profile is PyTorch's, character for character: the same events are given to both."""

from __future__ import annotations

import pytest

import flambeau
from flambeau import nn
from flambeau.profiler import ProfilerActivity, profile, record_function

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def pair():
    """The events of two training steps, and the same events as objects of PyTorch."""
    from torch.autograd import profiler_util

    flambeau.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = flambeau.optim.Adam(model.parameters())
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_modules=True, with_flops=True, with_stack=True
    ) as prof:
        for _ in range(2):
            with record_function("step"):
                loss = nn.functional.cross_entropy(model(flambeau.randn(8, 32)), flambeau.zeros(8, dtype=flambeau.int64))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    ours, theirs = prof.events(), {}
    for e in ours:
        theirs[id(e)] = profiler_util.FunctionEvent(
            e.id, e.name, e.thread, e.time_range.start, e.time_range.end, input_shapes=e.input_shapes, stack=e.stack, flops=e.flops,
            cpu_memory_usage=e.cpu_memory_usage, is_user_annotation=e.is_user_annotation,
        )  # fmt: skip
    for e in ours:
        for child in e.cpu_children:
            theirs[id(e)].append_cpu_child(theirs[id(child)])
            theirs[id(child)].set_cpu_parent(theirs[id(e)])
    other = profiler_util.EventList(theirs.values(), use_device=None, profile_memory=True, with_flops=True)
    other._tree_built = True
    return ours, other


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sort_by": "cpu_time_total"},
        {"sort_by": "self_cpu_time_total", "row_limit": 3},
        {"sort_by": "count", "row_limit": -1},
        {"header": "Training", "max_name_column_width": 20, "top_level_events_only": True},
        {"time_unit": "us"},
    ],
    ids=str,
)
def test_tables_are_pytorchs(pair, options):
    """The table of averages differs from PyTorch's in a column, a width, a line or a number."""
    ours, theirs = (events.key_averages().table(**options) for events in pair)
    assert ours == theirs.replace("This report only display top-level ops statistics", "The report shows operations of the top level only")


@pytest.mark.parametrize("width", [80, 10])
def test_tables_by_shape(pair, width):
    """Grouped by shapes there is a column for them, cut at its width."""
    ours, theirs = pair
    options = {"max_shapes_column_width": width}
    assert ours.key_averages(group_by_input_shapes=True).table(**options) == theirs.key_averages(group_by_input_shapes=True).table(
        **options
    )


def test_tables_by_stack_name_the_line(pair):
    """Grouped by stack the source location stands under its title, with the lines that called it below."""
    text = pair[0].key_averages(group_by_stack_n=2).table()
    head = next(line for line in text.splitlines() if "Source Location" in line)
    row = next(line for line in text.splitlines() if line.lstrip().startswith("step "))
    at = head.index("Source Location")
    assert row[at:].startswith("test_table.py(") or "test_table.py(" in row[at : at + 75]


def test_totals(pair):
    """Total average and total time are PyTorch's of the same events."""
    ours, theirs = pair
    assert ours.self_cpu_time_total == pytest.approx(theirs.self_cpu_time_total)
    mine, other = ours.total_average(), theirs.total_average()
    assert (mine.key, mine.count, mine.cpu_memory_usage) == (other.key, other.count, other.cpu_memory_usage)
    assert repr(ours.key_averages()[0]) == repr(theirs.key_averages()[0])


def test_device_columns():
    """With times on a GPU there are PyTorch's columns for them, and a second total."""
    from torch.autograd import profiler_util

    from flambeau.tracing import events

    tables = []
    for room in (events, profiler_util):
        options = {"use_device": "cuda", "stack": [], "is_legacy": True}
        first = room.FunctionEvent(0, "aten::linear", 1, 0.0, 50.0, cpu_memory_usage=10, device_memory_usage=2048, **options)
        second = room.FunctionEvent(1, "aten::addmm", 1, 50.0, 80.0, device_memory_usage=1024, **options)
        first.append_kernel("gemm", 0, 500.0)
        second.append_kernel("gemm", 0, 1500.0)
        listed = room.EventList([first, second], use_device="cuda", profile_memory=True, with_flops=False)
        listed._tree_built = True
        tables.append(listed.key_averages().table(sort_by="cuda_time_total"))
    assert tables[0] == tables[1]
