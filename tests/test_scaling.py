"""The scaling simulator: closed forms, what must grow and what must shrink, memory, PyTorch's buckets, and numbers others have measured."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # benchmarks/ is run from the repository, not installed
    sys.path.insert(0, str(ROOT))

from benchmarks.cases import training  # noqa: E402
from benchmarks.scaling import ddp, fsdp  # noqa: E402
from benchmarks.scaling.__main__ import COUNTS, main  # noqa: E402
from benchmarks.scaling.buckets import FIRST, OTHERS, assign  # noqa: E402
from benchmarks.scaling.check import SIZES, check  # noqa: E402
from benchmarks.scaling.collectives import alike, lap, quicker, ring, tree  # noqa: E402
from benchmarks.scaling.figures import CARDS, GPUS, LINKS, Cluster, Link  # noqa: E402
from benchmarks.scaling.models import MLP, MODELS, Layer  # noqa: E402
from benchmarks.scaling.picture import picture  # noqa: E402
from benchmarks.scaling.step import Pace, pace  # noqa: E402
from benchmarks.scaling.timeline import Job, play  # noqa: E402

LINK = Link("", latency=2e-6, bandwidth=5e10)
CLUSTER = Cluster(GPUS["h100"].link, LINKS["infiniband"])


@pytest.mark.parametrize("module", ["buckets", "collectives", "timeline", "table"])
def test_examples(module):
    """The examples in the docstrings are true."""
    found = doctest.testmod(importlib.import_module(f"benchmarks.scaling.{module}"))
    assert found.attempted and not found.failed


# Collectives


@pytest.mark.parametrize("ranks", [2, 3, 8, 100])
@pytest.mark.parametrize("size", [4, 1e6, 1e9])
def test_ring_closed_form(ranks, size):
    """2 (p - 1) / p of the bytes through every link, and 2 (p - 1) latencies; a lap is half of that."""
    expected = 2 * (ranks - 1) * LINK.latency + 2 * (ranks - 1) / ranks * size / LINK.bandwidth
    assert ring(size, ranks, alike(LINK)) == pytest.approx(expected)
    assert lap(size, ranks, alike(LINK)) == pytest.approx(expected / 2)
    assert ring(size, ranks, alike(LINK, 1)) == pytest.approx(expected)  # nodes of one


@pytest.mark.parametrize("levels", [1, 2, 5, 10])
def test_tree_closed_form(levels):
    """Small: 2 log p latencies. Large: every link carries 2n, whatever the number of ranks."""
    ranks, nodes_of_one = 2**levels, alike(LINK, 1)
    assert tree(0, ranks, nodes_of_one) == pytest.approx(2 * levels * LINK.latency)
    assert tree(1e13, ranks, nodes_of_one) == pytest.approx(2e13 / LINK.bandwidth, rel=0.01)


def test_pieces_of_a_tree_are_the_best():
    """No number of pieces beats the one that is chosen by more than rounding it to an integer explains."""
    ranks, size = 64, 1e8
    hops, whole = 12, size / LINK.bandwidth
    in_pieces = [hops * (LINK.latency + whole / k) + (k - 1) * (LINK.latency + 2 * whole / k) for k in range(1, 300)]
    assert tree(size, ranks, alike(LINK, 1)) == pytest.approx(min(in_pieces), rel=1e-3)


def test_one_rank_sends_nothing():
    """Alone, every collective takes no time."""
    assert [collective(1e9, 1, alike(LINK)) for collective in (lap, ring, tree, quicker)] == [0.0] * 4


@pytest.mark.parametrize("collective", [lap, ring, tree, quicker])
def test_more_bytes_or_ranks_take_longer(collective):
    """Never less for more bytes, nor for more nodes."""
    sizes = [4 * 10**n for n in range(10)]
    for ranks in COUNTS:
        times = [collective(size, ranks, CLUSTER) for size in sizes]
        assert times == sorted(times)
    for size in sizes:
        times = [collective(size, ranks, CLUSTER) for ranks in COUNTS]
        assert times == sorted(times)


def test_ring_for_large_and_tree_for_small():
    """On many nodes the tree is quicker for a number, on a few the ring is for a gigabyte; `quicker` takes what is less."""
    assert tree(4, 1024, CLUSTER) < ring(4, 1024, CLUSTER) / 20
    assert ring(1e9, 16, CLUSTER) < tree(1e9, 16, CLUSTER)
    assert quicker(4, 1024, CLUSTER) == tree(4, 1024, CLUSTER)
    assert quicker(1e9, 16, CLUSTER) == ring(1e9, 16, CLUSTER)


def test_nodes_that_are_not_full():
    """Ranks that do not fill their nodes are refused, with a number that does."""
    with pytest.raises(ValueError, match="12 ranks do not fill nodes of 8: try 8"):
        ring(1, 12, CLUSTER)


@pytest.mark.parametrize(
    ("gpu", "card", "ranks", "size", "reported"),
    [
        ("h100", 400e9, 8, 4 << 30, (365e9, 370e9)),  # NCCL_ALGO=RING, 2 to 4 GB: github.com/NVIDIA/nccl, issue 1455
        ("a100", 200e9, 8, 4 << 30, (230e9, 250e9)),  # "close to 240": github.com/NVIDIA/nccl, issue 1712
        ("a100", 100e9, 24, 128 << 20, (84e9, 96e9)),  # 3 nodes with 4 cards of 200 Gb/s: github.com/NVIDIA/nccl-tests, issue 119
    ],
)
def test_bandwidths_that_were_reported(gpu, card, ranks, size, reported):
    """2 (p - 1) / p n / t, which nccl-tests calls bus bandwidth, is what people have measured."""
    cluster = Cluster(GPUS[gpu].link, Link("", 4e-6, card / 8 * CARDS))
    low, high = reported
    assert low <= 2 * (ranks - 1) / ranks * size / ring(size, ranks, cluster) <= high


# The timeline


def test_a_resource_does_one_job_at_a_time():
    """Jobs that are ready queue for their resource, in the order in which they became ready; other resources go on."""
    a, b = Job("a", "gpu", 2.0), Job("b", "gpu", 1.0)
    c, d = Job("c", "link", 5.0, [a]), Job("d", "link", 1.0, [b])
    assert play([a, b, c, d]) == 8.0
    assert [(job.start, job.end) for job in (a, b, c, d)] == [(0, 2), (2, 3), (2, 7), (7, 8)]


def test_jobs_that_wait_for_one_another():
    """A circle is an error rather than an endless wait."""
    a = Job("a", "gpu", 1.0)
    b = Job("b", "gpu", 1.0, [a])
    a.after = [b]
    with pytest.raises(ValueError, match="2 of 2 jobs wait for one another"):
        play([a, b])


def test_picture():
    """Every resource has a row, a busy column a letter."""
    jobs = [Job("forward", "compute", 2.0), Job("bucket 3", "link", 1.0)]
    jobs[1].after = [jobs[0]]
    play(jobs)
    assert picture(jobs, 6) == "compute  FFFF..\nlink     ....33"


# Models and buckets


@pytest.mark.parametrize(
    ("model", "module"),
    [(MLP, training.mlp(torch)), (MODELS["gpt"], training.gpt(torch, vocabulary=65, block=64))],
    ids=["mlp", "gpt"],
)
def test_parameters_of_the_benchmarks(model, module):
    """The models that are measured have the parameters that are simulated, and in such an order that PyTorch's buckets are as large."""
    sizes = [4 * p.numel() for p in module.parameters()]
    ours = [4 * n for layer in model.layers for n in layer.parameters]
    assert model.parameters == sum(p.numel() for p in module.parameters())
    assert [sum(ours[i] for i in bucket) for bucket in assign(ours)] == [sum(sizes[i] for i in bucket) for bucket in assign(sizes)]


def test_gpt2_is_gpt2():
    """GPT-2 small has 124,439,808 parameters, embeddings and head being one."""
    assert MODELS["gpt2"].parameters == 124_439_808


@pytest.mark.parametrize(("first", "others"), [(FIRST, OTHERS), (1 << 14, 1 << 15), (100, 100)])
@pytest.mark.parametrize("build", [training.mlp, lambda torch: training.gpt(torch, 65, 64)], ids=["mlp", "gpt"])
def test_buckets_are_pytorchs(build, first, others):
    """What PyTorch assigns, given gradients that come about from the last to the first."""
    parameters = list(build(torch).parameters())
    order = list(reversed(range(len(parameters))))
    expected, _ = torch.distributed._compute_bucket_assignment_by_size(
        [parameters[i] for i in order], [first, others], [False] * len(order), order
    )
    assert assign([4 * p.numel() for p in parameters], first, others) == expected


# Steps

LAYERS = [Layer((1000,), 1.0), Layer((2000,), 2.0), Layer((3000,), 3.0)]
PACE = Pace(tokens=1, flops=1.0, bandwidth=28e9)


def test_a_step_without_waiting():
    """Free sending: forward, twice as much for backward, and the update's bytes."""
    step = ddp.step(LAYERS, PACE, lambda size: 0.0)
    assert step.total == pytest.approx(3 * 6 + 6e-6)
    assert step.hidden == step.efficiency == 1.0


def test_only_the_last_bucket_shows():
    """Buckets that are through before backward ends cost nothing; the last one begins when backward has ended, and shows whole."""
    step = ddp.step(LAYERS, PACE, lambda size: 0.5, bucket=1)
    starts = [job.start for job in step.jobs if job.resource == "link"]
    assert starts == [6 + 6, 6 + 6 + 4, 6 + 6 + 4 + 2]
    assert step.exposed == pytest.approx(0.5)
    assert step.hidden == pytest.approx(2 / 3)


def test_one_bucket_hides_nothing():
    """A model smaller than the first bucket is sent when backward has ended."""
    step = ddp.step(LAYERS, PACE, lambda size: 0.5)
    assert step.exposed == pytest.approx(0.5)
    assert step.hidden == pytest.approx(0.0)


def test_buckets_wait_for_one_another():
    """A slow link is busy from the first bucket on, and the step takes what it takes."""
    step = ddp.step(LAYERS, PACE, lambda size: 100.0, bucket=1)
    assert step.total == pytest.approx(6 + 6 + 300 + 6e-6)


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("link", list(LINKS))
def test_steps_are_never_shorter_than_their_parts(model, link):
    """A step takes at least its computing and its sending, at most their sum; more ranks make it longer, and the GPU idle for more of it."""
    cluster, model = Cluster(GPUS["h100"].link, LINKS[link]), MODELS[model]
    speed = pace(model, GPUS["h100"])
    efficiencies = []
    for ranks in COUNTS:
        for step in (
            ddp.step(model.layers, speed, lambda size: quicker(size, ranks, cluster)),  # noqa: B023
            fsdp.step(model, speed, lambda size: lap(size, ranks, cluster), ranks),  # noqa: B023
        ):
            assert max(step.computing, step.sending) <= step.total * (1 + 1e-9)
            assert step.total <= (step.computing + step.sending) * (1 + 1e-9)
            assert 0 <= step.hidden <= 1
        efficiencies.append(step.efficiency)
    assert efficiencies == sorted(efficiencies, reverse=True)


def test_gathering_ahead_helps():
    """Without prefetching every block waits for its parameters; one block ahead, all but the first are there."""
    model = MODELS["1.3b"]
    speed = pace(model, GPUS["h100"])
    exposed = [fsdp.step(model, speed, lambda size: lap(size, 64, CLUSTER), 64, prefetch).exposed for prefetch in (0, 1, 2)]
    assert exposed[0] > 5 * exposed[1]
    assert exposed[2] <= exposed[1]


def test_what_is_sent():
    """Blocks: 2 + 2 + 4 bytes a parameter in one lap each, as many as 4 bytes in the two laps of an all-reduce; the rest is gathered once."""
    model = MODELS["1.3b"]
    sent: list[float] = []
    fsdp.jobs(model, pace(model, GPUS["h100"]), lambda size: sent.append(size) or 0.0, 64)
    blocks = sum(sum(layer.parameters) for block in model.blocks for layer in block)
    assert sum(sent) == 8 * blocks + 6 * (model.parameters - blocks)
    sent.clear()
    ddp.jobs(model.layers, pace(model, GPUS["h100"]), lambda size: sent.append(size) or 0.0)
    assert sum(sent) == 4 * model.parameters


# Memory


def test_memory_between_steps():
    """Float32 with Adam: 16 bytes a parameter with DDP, a rank's part of that with fully_shard."""
    n = MODELS["7b"].parameters
    assert ddp.memory(n) == 16 * n
    assert [fsdp.kept(n, ranks) for ranks in (1, 2, 1024)] == [16 * n, 8 * n, n / 64]


def test_memory_at_the_peak():
    """What is gathered stands on top of a rank's part, and less of it is shared than is kept: 1,024 times the ranks is not a 1,024th."""
    model = MODELS["7b"]
    peaks = [fsdp.memory(model, ranks) for ranks in COUNTS]
    assert peaks == sorted(peaks, reverse=True)
    assert all(peak > fsdp.kept(model.parameters, ranks) for peak, ranks in zip(peaks, COUNTS, strict=True))
    whole = peaks[0] - fsdp.kept(model.parameters, 8)
    assert peaks[-1] - fsdp.kept(model.parameters, 1024) == pytest.approx(whole)


# The command


def test_tables(capsys):
    """Every number of GPUs has its line in each of three tables, and what does not fit is marked."""
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert [printed.count(f"\n{ranks:>5,} ") for ranks in COUNTS] == [3] * len(COUNTS)
    assert "107 GB !" in printed


def test_timeline_is_drawn(capsys):
    """--timeline draws a row for the GPU and one for the link, for both kinds of training."""
    assert main(["--timeline", "--gpus", "16", "--model", "gpt2"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("compute ", "link "))]
    assert len(rows) == 4
    assert all(set(row.split()[1]) > {"."} for row in rows)


def documented() -> list[tuple[str, str]]:
    """Commands in docs/scaling.md, and what stands below them."""
    text = (ROOT / "docs" / "scaling.md").read_text()
    return re.findall(r"```\n\$ python -m benchmarks\.scaling ([^\n]*)\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize(("command", "shown"), documented(), ids=[command for command, _ in documented()])
def test_the_page_is_true(command, shown, capsys, monkeypatch):
    """What docs/scaling.md shows is what the command prints."""
    monkeypatch.chdir(ROOT)
    assert main(command.split()) == 0
    assert capsys.readouterr().out.strip() == shown.strip()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpus", "12"], "12 ranks do not fill nodes of 8: try 8"),
        (["--gpus", "many"], "expected numbers with commas between"),
        (["--gpus", "0"], "expected at least one GPU"),
        (["--check", "/nowhere.json"], "there is no file /nowhere.json"),
    ],
)
def test_wrong_usage(arguments, said, capsys):
    """Wrong arguments are explained."""
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err


# Predicted against measured


def recorded(path: Path, measured: dict[str, float]) -> Path:
    """A file as `python -m benchmarks.distributed --write` leaves it."""
    entries = [
        {
            "case": case,
            "readings": {"torch": {"error": None, "settings": [{"threads": 1, "median": value, "min": value, "rounds": [value]}]}},
        }
        for case, value in measured.items()
    ]
    head = {"machine": {"processor": "a processor"}, "options": {"statistic": "min", "rounds": 1}, "frameworks": {"torch": {}, "other": {}}}
    path.write_text(json.dumps({**head, "results": entries}))
    return path


LATENCY, BANDWIDTH, ALONE = 10e-6, 1e9, 50e-3


def made_up(together: float) -> dict[str, float]:
    """What two processes would measure if the model were right, with a DDP step of the GPT of `together` seconds."""
    link = alike(Link("", LATENCY, BANDWIDTH), 2)
    all_reduces = {f"collectives.all_reduce(size={name})": ring(size, 2, link) for name, size in SIZES.items()}
    steps = {"steps.no_sync(model=gpt)": ALONE, "steps.ddp(model=gpt)": together, "steps.allreduce_only(model=gpt)": gpt_sending()}
    return all_reduces | steps | {"memory.ddp": 16.0 * MODELS["gpt"].parameters}


def gpt_sending() -> float:
    """Seconds that the GPT's two buckets take on that link."""
    return 4 * LATENCY + 4 * MODELS["gpt"].parameters / BANDWIDTH


def verdicts(lines: list[str]) -> dict[str, str]:
    """The last column, by what it is about."""
    return {line[2:46].strip(): line[-22:].strip() for line in lines if line.startswith("  ") and line[2:46].strip()}


@pytest.mark.parametrize("shown", [1.0, 0.8], ids=["nothing hidden", "some hidden"])
def test_check_of_what_fits(shown, tmp_path):
    """Measurements made up from the model itself are as predicted, wherever between the two ends a step lies."""
    lines = list(check(recorded(tmp_path / "made-up.json", made_up(ALONE + shown * gpt_sending()))))
    assert len(verdicts(lines)) == 6
    assert set(verdicts(lines).values()) == {"as predicted"}
    assert any(line.startswith("torch: a message takes 10.0 µs + its bytes / 1.00 GB/s") for line in lines)
    assert "other: nothing to predict from" in lines[-1]


def test_check_of_what_does_not_fit(tmp_path):
    """What takes twice as long as predicted says so, and so do a step that waits for more than its sending, and one that hides too much."""
    slow = made_up(2 * (ALONE + gpt_sending()))
    slow["collectives.all_reduce(size=4 KB)"] *= 2
    found = verdicts(list(check(recorded(tmp_path / "slow.json", slow))))
    assert found["all_reduce of 4 KB"] == found["step of the gpt under DDP"] == "2.00x predicted"
    assert "points" in found["hidden of the gpt's sending"]
    magic = verdicts(list(check(recorded(tmp_path / "magic.json", made_up(ALONE)))))
    assert magic["hidden of the gpt's sending"].startswith("+")
