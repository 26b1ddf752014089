"""SummaryWriter: PyTorch's interface to TensorBoard's event files."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from flambeau.errors import refusal
from flambeau.utils.tensorboard import records


class SummaryWriter:
    """Writes what happens in a run into a folder that TensorBoard shows.

    log_dir           the folder; by default runs/<date>_<time>_<host><comment>
    purge_step        events from this step on, left by a run that crashed, are hidden
    max_queue         how many events wait in memory before they are written, and
    flush_secs        for how long
    filename_suffix   ends the names of the files
    """

    def __init__(
        self,
        log_dir: str | os.PathLike | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ):
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self.purge_step, self.max_queue, self.flush_secs, self.filename_suffix = purge_step, max_queue, flush_secs, filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._get_file_writer()  # the folder is there from the start, as TensorBoard may be

    def _get_file_writer(self) -> FileWriter:
        """The open file; a new one after close()."""
        if self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, self.max_queue, self.flush_secs, self.filename_suffix)
            self.all_writers = {self.log_dir: self.file_writer}
            if self.purge_step is not None:
                start = Event(session_log=SessionLog(status=SessionLog.START))
                self.file_writer.add_event(Event(file_version="brain.Event:2"), self.purge_step)
                self.file_writer.add_event(start, self.purge_step)
                self.purge_step = None
        return self.file_writer

    def get_logdir(self) -> str:
        return self.log_dir

    # -- numbers ---------------------------------------------------------------------------------------------------

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """One number at a step: a point of a curve."""
        self._add(records.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Several curves in one diagram: each goes to a folder of its own, below this one."""
        self._get_file_writer()
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)
            self.all_writers[folder].add_summary(records.scalar(main_tag, value), global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """A whole tensor."""
        self._add(records.tensor(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How often values fall into each of many bins. Values that are not finite are left out."""
        self._add(records.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: Any,
        max: Any,
        num: Any,
        sum: Any,
        sum_squares: Any,
        bucket_limits: Sequence[float],
        bucket_counts: Sequence[float],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram that has been counted already; a limit is the right edge of its bucket."""
        self._add(records.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts), global_step, walltime)

    # -- pictures --------------------------------------------------------------------------------------------------

    def add_image(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None, dataformats: str = "CHW"
    ) -> None:
        """A picture: bytes, or fractions from 0 to 1."""
        self._add(records.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None, dataformats: str = "NCHW"
    ) -> None:
        """A batch of pictures, in rows of eight."""
        self._add(records.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_figure(self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None) -> None:
        """A figure of matplotlib, or a list of figures of one size."""
        if isinstance(figure, (list, tuple)):
            pixels = np.stack([records.figure_pixels(f, close) for f in figure])
            self._add(records.image(tag, pixels, "NHWC"), global_step, walltime)
        else:
            self._add(records.image(tag, records.figure_pixels(figure, close), "HWC"), global_step, walltime)

    # -- words -----------------------------------------------------------------------------------------------------

    def add_text(self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None) -> None:
        """Markdown."""
        self._add(records.text(tag, text_string), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """The options of a run and what came of them: a row of the table of runs, in a folder below this one."""
        summaries = records.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        with SummaryWriter(folder) as run:
            for summary in summaries:
                run._add(summary, None, None)
            for tag, value in metric_dict.items():
                run.add_scalar(tag, value, global_step)

    def add_embedding(
        self,
        mat: Any,
        metadata: Sequence[Any] | None = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Points (N, D) for the projector, with a label and a picture (N, C, H, W) each where they are given."""
        points = records.to_array(mat)
        if points.ndim != 2:
            raise ValueError(f"mat should be (points, features), not {points.shape}")
        place = f"{'00000' if global_step is None else str(global_step).zfill(5)}/{tag}"
        folder = Path(self._get_file_writer().get_logdir(), place)
        folder.mkdir(parents=True, exist_ok=True)
        config = ProjectorConfig()
        listed = Path(self.log_dir, "projector_config.pbtxt")
        if listed.exists():
            from google.protobuf import text_format

            text_format.Parse(listed.read_text(), config)
        entry = config.embeddings.add(tensor_name=f"{tag}:{place.partition('/')[0]}", tensor_path=f"{place}/tensors.tsv")
        (folder / "tensors.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in points.tolist()))
        if metadata is not None:
            _check_count("labels", len(metadata), len(points))
            rows = [metadata_header, *metadata] if metadata_header else metadata
            lines = ("\t".join(map(str, row)) if isinstance(row, (list, tuple)) else str(row) for row in rows)
            (folder / "metadata.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            entry.metadata_path = f"{place}/metadata.tsv"
        if label_img is not None:
            pictures = records.to_array(label_img)
            _check_count("images", len(pictures), len(points))
            (folder / "sprite.png").write_bytes(_sprite(pictures))
            entry.sprite.image_path = f"{place}/sprite.png"
            entry.sprite.single_image_dim.extend([pictures.shape[3], pictures.shape[2]])
        listed.write_text(str(config))

    # -- the end ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what waits in memory."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Write what waits in memory, and close the files. A later add_... opens new ones."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _add(self, summary: Summary, step: int | None, walltime: float | None) -> None:
        self._get_file_writer().add_summary(summary, step, walltime)


class FileWriter:
    """One event file."""

    def __init__(self, log_dir: str | os.PathLike, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""):
        self.event_writer = EventFileWriter(os.fspath(log_dir), max_queue, flush_secs, filename_suffix)
        self.flush: Callable[[], None] = self.event_writer.flush
        self.close: Callable[[], None] = self.event_writer.close
        self.get_logdir: Callable[[], str] = self.event_writer.get_logdir

    def add_event(self, event: Event, step: Any = None, walltime: float | None = None) -> None:
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Summary, global_step: Any = None, walltime: float | None = None) -> None:
        self.add_event(Event(summary=summary), global_step, walltime)


def _check_count(what: str, found: int, points: int) -> None:
    if found != points:
        raise ValueError(f"#{what} should equal with #data points: there are {found} {what} and {points} points")


def _sprite(pictures: np.ndarray) -> bytes:
    """All pictures in a square, as the projector wants them."""
    n, c, h, w = pictures.shape
    side = int(np.ceil(np.sqrt(n)))
    filled = np.concatenate([pictures, np.zeros((side * side - n, c, h, w), pictures.dtype)])
    square = filled.reshape(side, side, c, h, w).transpose(0, 3, 1, 4, 2).reshape(side * h, side * w, c)
    scale = 1 if square.dtype == np.uint8 else 255
    return records.png(
        (np.broadcast_to(square, (*square.shape[:2], 3)) * scale if c == 1 else square * scale).clip(0, 255).astype(np.uint8)
    )


for _names, _why in {
    "add_graph add_onnx_graph": "there is no graph of a model to draw, the Python that runs is the model. add_text(str(model)) shows its layers",
    "add_video add_audio add_mesh": "moving pictures, sounds and meshes are not written; add_images shows the frames of a video",
    "add_pr_curve add_pr_curve_raw": "draw the curve with matplotlib and use add_figure",
    "add_image_with_boxes": "draw the boxes with flambeau.vision.utils.draw_bounding_boxes and use add_image",
    "add_custom_scalars add_custom_scalars_multilinechart add_custom_scalars_marginchart": "add_scalars puts several curves into one diagram",
}.items():
    for _name in _names.split():
        setattr(SummaryWriter, _name, refusal(f"SummaryWriter.{_name}", NotImplementedError, f"is not there: {_why}"))
