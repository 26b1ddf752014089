"""Event files: everything that is written can be read back by TensorBoard's own reader."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import flambeau

pytest.importorskip("tensorboard")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugins.hparams import metadata as hparams_metadata

from flambeau.utils.tensorboard import SummaryWriter

EVERYTHING = dict.fromkeys(("scalars", "images", "histograms", "tensors"), 0)


def read(folder) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance=EVERYTHING)
    events.Reload()
    return events


def test_curves(tmp_path):
    """Numbers, tensors and arrays of one element, with their steps and times."""
    with SummaryWriter(tmp_path) as writer:
        for step, value in enumerate([0.5, flambeau.tensor(0.25, requires_grad=True), np.float32(0.125), flambeau.ones(1, 1), 3]):
            writer.add_scalar("loss/train", value, step)
        writer.add_scalar("low", flambeau.tensor(0.5, dtype=flambeau.bfloat16), flambeau.tensor(7), walltime=123.0)
        writer.add_scalar("new", 1 / 3, 2, new_style=True)
        writer.add_scalar("exact", 1 / 3, 2, double_precision=True)
    events = read(tmp_path)
    assert [(e.step, e.value) for e in events.Scalars("loss/train")] == list(enumerate([0.5, 0.25, 0.125, 1.0, 3.0]))
    assert [(e.step, e.value, e.wall_time) for e in events.Scalars("low")] == [(7, 0.5, 123.0)]
    assert events.Tensors("new")[0].tensor_proto.float_val[0] == np.float32(1 / 3)
    assert events.Tensors("exact")[0].tensor_proto.double_val[0] == 1 / 3
    with pytest.raises(ValueError, match="0D"):
        writer.add_scalar("many", flambeau.ones(3))
    with pytest.raises(NotImplementedError, match="str"):
        writer.add_scalar("words", "0.5")


def test_several_curves_in_one_diagram(tmp_path):
    """add_scalars gives each curve a folder of its own."""
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalars("run/loss", {"train": 1.0, "test": 2.0}, 5)
    for name, value in (("train", 1.0), ("test", 2.0)):
        assert [(e.step, e.value) for e in read(tmp_path / f"run_loss_{name}").Scalars("run/loss")] == [(5, value)]


@pytest.mark.parametrize("bins", ["tensorflow", "auto", [-2.0, 0.0, 0.3, 3.0]])
def test_histograms_count_every_value(tmp_path, bins):
    """Counts by bucket are those of the values between its limits; sums and extremes are theirs too."""
    values = np.random.default_rng(0).normal(size=200).clip(-1.9, 2.9)
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("h", flambeau.from_numpy(values), 3, bins=bins)
    (event,) = read(tmp_path).Histograms("h")
    h = event.histogram_value
    assert event.step == 3 and h.num == 200 and np.isclose(h.sum, values.sum()) and np.isclose(h.sum_squares, (values**2).sum())
    assert (h.min, h.max) == (values.min(), values.max())
    limits, counts = np.array(h.bucket_limit), np.array(h.bucket)
    assert len(limits) == len(counts) and counts[0] == 0 and counts.sum() == 200
    for i in range(1, len(limits)):
        last = i == len(limits) - 1
        inside = (values >= limits[i - 1]) & ((values <= limits[i]) if last else (values < limits[i]))
        assert inside.sum() == counts[i]


def test_histograms_of_a_run_that_diverges(tmp_path):
    """Values that are not finite are left out; nothing at all is an error that names the tag."""
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("h", flambeau.tensor([1.0, float("nan"), float("inf"), 2.0]))
        writer.add_histogram("few", flambeau.arange(1000.0), max_bins=10)
        writer.add_histogram_raw("raw", 0, 2, 3, 4, 6, [1.0, 2.0], [1, 2], 9)
        for nothing in ([], [float("nan")]):
            with pytest.raises(ValueError, match="'g'"):
                writer.add_histogram("g", np.array(nothing))
    events = read(tmp_path)
    assert events.Histograms("h")[0].histogram_value.num == 2
    few = events.Histograms("few")[0].histogram_value
    assert sum(few.bucket) == 1000 and len(few.bucket) <= 12
    assert events.Histograms("raw")[0].histogram_value.bucket == [1.0, 2.0]


def pixels(event) -> np.ndarray:
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(io.BytesIO(event.encoded_image_string)))


def test_pictures(tmp_path):
    """Fractions and bytes, in any order of dimensions, grey or coloured, come back pixel by pixel."""
    colour = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)  # H, W, C
    chw = flambeau.from_numpy(np.ascontiguousarray(colour.transpose(2, 0, 1)))
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("bytes", chw, 1)
        writer.add_image("fractions", chw.float() / 255, 1)
        writer.add_image("last", colour, 1, dataformats="HWC")
        writer.add_image("grey", colour[:, :, 0], 1, dataformats="HW")
        writer.add_images("batch", chw.expand(9, 3, 5, 4), 1)
        with pytest.raises(ValueError, match="shape"):
            writer.add_image("wrong", colour[:, :, 0])
        with pytest.raises(ValueError, match="channels"):
            writer.add_image("wrong", colour)
    events = read(tmp_path)
    assert np.array_equal(pixels(events.Images("bytes")[0]), colour)
    assert np.abs(pixels(events.Images("fractions")[0]).astype(int) - colour).max() <= 1
    assert np.array_equal(pixels(events.Images("last")[0]), colour)
    assert np.array_equal(pixels(events.Images("grey")[0])[:, :, 1], colour[:, :, 0])
    batch = pixels(events.Images("batch")[0])
    assert batch.shape == (10, 32, 3) and np.array_equal(batch[5:, :4], colour) and batch[5:, 4:].max() == 0
    assert (events.Images("batch")[0].width, events.Images("batch")[0].height) == (32, 10)


def test_figures(tmp_path):
    """A figure of matplotlib arrives as a picture, and is closed unless it is wanted later."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    figures = [pyplot.figure(figsize=(2, 1), dpi=50) for _ in range(3)]
    figures[0].patch.set_facecolor("red")
    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("one", figures[0], 4, close=False)
        assert len(pyplot.get_fignums()) == 3
        writer.add_figure("all", figures, 4)
        assert pyplot.get_fignums() == []
    events = read(tmp_path)
    assert pixels(events.Images("one")[0]).shape == (50, 100, 3) and pixels(events.Images("one")[0])[0, 0].tolist() == [255, 0, 0]
    assert pixels(events.Images("all")[0]).shape == (50, 300, 3)


def test_words_and_tensors(tmp_path):
    """Text reaches the text plugin, a tensor comes back whole."""
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("notes", "**bold** é", 2)
        writer.add_tensor("t", flambeau.arange(6).view(2, 3), 2)
    events = read(tmp_path)
    assert events.Tensors("notes/text_summary")[0].tensor_proto.string_val[0].decode() == "**bold** é"
    assert "notes/text_summary" in events.PluginTagToContent("text")
    proto = events.Tensors("t")[0].tensor_proto
    assert [d.size for d in proto.tensor_shape.dim] == [2, 3] and list(
        proto.int64_val or np.frombuffer(proto.tensor_content, np.int64)
    ) == [*range(6)]


def test_hyperparameters(tmp_path):
    """A row of the table of runs: options with their types, metrics as curves, in a folder below."""
    options = {"lr": 0.1, "layers": 3, "bias": True, "name": "adam", "decay": flambeau.tensor(0.5), "unset": None}
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams(options, {"hparam/accuracy": 0.9}, {"layers": [2, 3]}, run_name="first", global_step=8)
        with pytest.raises(ValueError, match=r"'f'.*function"):
            writer.add_hparams({"f": lambda: 0}, {})
        with pytest.raises(TypeError, match="dictionaries"):
            writer.add_hparams([1], {})
    events = read(tmp_path / "first")
    assert [(e.step, e.value) for e in events.Scalars("hparam/accuracy")] == [(8, pytest.approx(0.9))]
    content = events.PluginTagToContent("hparams")
    start = hparams_metadata.parse_session_start_info_plugin_data(content[hparams_metadata.SESSION_START_INFO_TAG])
    found = {name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()}
    assert found == {"lr": 0.1, "layers": 3, "bias": True, "name": "adam", "decay": 0.5}
    experiment = hparams_metadata.parse_experiment_plugin_data(content[hparams_metadata.EXPERIMENT_TAG])
    assert [m.name.tag for m in experiment.metric_infos] == ["hparam/accuracy"] and len(experiment.hparam_infos) == 5


def test_points_for_the_projector(tmp_path):
    """Coordinates, labels and pictures of an embedding lie where the projector's configuration says; several can be added."""
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(flambeau.eye(3), ["a", "b", "c"], flambeau.rand(3, 1, 4, 5), global_step=2, tag="first")
        writer.add_embedding(np.ones((2, 4)), [["x", 1], ["y", 2]], metadata_header=["name", "n"])
        with pytest.raises(ValueError, match="labels"):
            writer.add_embedding(np.ones((2, 4)), ["x"])
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert "00002/first/tensors.tsv" in config and "00000/default/metadata.tsv" in config
    assert (tmp_path / "00002/first/tensors.tsv").read_text().splitlines()[1] == "0.0\t1.0\t0.0"
    assert (tmp_path / "00000/default/metadata.tsv").read_text() == "name\tn\nx\t1\ny\t2\n"
    assert (tmp_path / "00002/first/sprite.png").stat().st_size > 0


def test_the_default_folder_and_the_names_of_files(tmp_path, monkeypatch):
    """runs/<date>_<time>_<host><comment>, and files with the suffix that was asked for; the folder is there at once."""
    monkeypatch.chdir(tmp_path)
    writer = SummaryWriter(comment="_lr0.1", filename_suffix=".mine")
    assert re.fullmatch(r"runs/[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.+_lr0\.1", writer.log_dir) and writer.get_logdir() == writer.log_dir
    writer.close()
    (file,) = Path(writer.log_dir).iterdir()
    assert file.name.startswith("events.out.tfevents.") and file.name.endswith(".mine")


def test_flush_close_and_writing_on(tmp_path):
    """flush makes everything readable; after close a new file is begun."""
    writer = SummaryWriter(tmp_path, max_queue=1000, flush_secs=1000)
    writer.add_scalar("a", 1.0, 0)
    writer.flush()
    assert len(read(tmp_path).Scalars("a")) == 1
    writer.close()
    writer.close()
    time.sleep(0.002)
    writer.add_scalar("a", 2.0, 1)
    writer.close()
    assert [e.value for e in read(tmp_path).Scalars("a")] == [1.0, 2.0]


def test_steps_after_a_crash_are_purged(tmp_path):
    """A run that resumes at a step hides what the crashed one wrote from there on."""
    with SummaryWriter(tmp_path) as writer:
        for step in range(6):
            writer.add_scalar("a", step, step)
    time.sleep(1.1)  # files are read in the order of their names, which hold seconds
    with SummaryWriter(tmp_path, purge_step=3) as writer:
        writer.add_scalar("a", 33.0, 3)
    assert [(e.step, e.value) for e in read(tmp_path).Scalars("a")] == [(0, 0), (1, 1), (2, 2), (3, 33)]
    newest = max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime)
    assert any(event.HasField("session_log") for event in EventFileLoader(str(newest)).Load())


def test_what_is_not_written_says_so(tmp_path):
    """Parts of PyTorch's writer that are missing raise a sentence with what to do instead."""
    with SummaryWriter(tmp_path) as writer:
        for name, hint in (
            ("add_graph", "add_text"),
            ("add_pr_curve", "add_figure"),
            ("add_video", "add_images"),
            ("add_image_with_boxes", "draw"),
        ):
            with pytest.raises(NotImplementedError, match=hint):
                getattr(writer, name)("tag", None)


def test_pytorch_has_no_method_that_is_not_there():
    """Whatever PyTorch's SummaryWriter has, ours has, if only to say why not, with the same parameters where it works."""
    import inspect

    torch_writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter
    for name, method in vars(torch_writer).items():
        if not name.startswith("_"):
            ours = getattr(SummaryWriter, name)
            parameters = list(inspect.signature(ours).parameters)
            assert parameters == ["args", "kwargs"] or parameters == list(inspect.signature(method).parameters), name


def test_without_tensorboard_the_message_says_how_to_get_it():
    """The import fails with the command that installs the package."""
    program = "import sys; sys.modules['tensorboard'] = None\nimport flambeau.utils.tensorboard"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 1 and "ImportError" in found.stderr and "pip install 'flambeau[tensorboard]'" in found.stderr
