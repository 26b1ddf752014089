"""What is written into event files: one function for each kind, from tensors, arrays and numbers to TensorBoard's protocol buffers."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.text import metadata as text_metadata
from tensorboard.util import tensor_util

from flambeau import dtypes
from flambeau.tensor import Tensor


def to_array(value: Any) -> np.ndarray:
    """The numbers of a tensor, an array, a list or a number, on the host."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype is dtypes.bfloat16 else value).numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise NotImplementedError(f"Got {type(value)}, but expected numpy array or torch tensor.")
    return array


def _summary(tag: str, **content: Any) -> Summary:
    return Summary(value=[Summary.Value(tag=tag.lstrip("/"), **content)])


# -- numbers -------------------------------------------------------------------------------------------------------


def scalar(tag: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Summary:
    """One number; in the new style as a tensor, which can keep double precision."""
    array = to_array(value).squeeze()
    if array.ndim:
        raise ValueError(f"scalar should be 0D: {tag!r} has shape {np.shape(value)}. Try .mean(), or add_histogram")
    if not (new_style or double_precision):
        return _summary(tag, simple_value=float(array))
    numbers = array.astype(np.float64 if double_precision else np.float32)
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
    return _summary(tag, tensor=tensor_util.make_tensor_proto(numbers), metadata=metadata)


def tensor(tag: str, value: Tensor) -> Summary:
    return _summary(tag, tensor=tensor_util.make_tensor_proto(to_array(value)))


@cache
def exponential_edges() -> np.ndarray:
    """Edges of bins that grow by a tenth, from 1e-12 to 1e20 on both sides of 0: what TensorBoard calls "tensorflow"."""
    edges, edge = [], 1e-12
    while edge < 1e20:
        edges.append(edge)
        edge *= 1.1
    return np.array([-e for e in reversed(edges)] + [0.0] + edges)


def histogram(tag: str, values: Any, bins: Any = "tensorflow", max_bins: int | None = None) -> Summary:
    """How often values fall into each of many bins: edges by name (as in numpy.histogram), or given."""
    numbers = to_array(values).astype(np.float64).ravel()
    if numbers.size == 0:
        raise ValueError(f"The histogram {tag!r} is empty: there are no values")
    finite = numbers[np.isfinite(numbers)]  # a bin has no place for the others, and a run that diverges should still be drawn
    if finite.size == 0:
        raise ValueError(f"The histogram {tag!r} has no finite value among its {numbers.size}")
    counts, edges = np.histogram(finite, bins=exponential_edges() if isinstance(bins, str) and bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:
        step = len(counts) // max_bins
        starts = np.arange(0, len(counts), step)
        counts, edges = np.add.reduceat(counts, starts), np.append(edges[:-1][starts], edges[-1])
    used = np.flatnonzero(counts)
    if used.size == 0:
        raise ValueError(f"The histogram {tag!r} has all {finite.size} values outside of its bins")
    first, last = used[0], used[-1]
    # A limit is the right edge of its bucket; an empty bucket in front says where the first one that is not begins.
    return histogram_raw(
        tag, finite.min(), finite.max(), finite.size, finite.sum(), finite @ finite, edges[first : last + 2], [0, *counts[first : last + 1]]
    )


def histogram_raw(tag: str, min: Any, max: Any, num: Any, sum: Any, sum_squares: Any, limits: Any, counts: Any) -> Summary:
    if len(limits) != len(counts):
        raise ValueError(f"len(bucket_limits) != len(bucket_counts): {len(limits)} and {len(counts)}, see the documentation.")
    numbers = {"min": min, "max": max, "num": num, "sum": sum, "sum_squares": sum_squares}
    proto = HistogramProto(
        **{name: float(value) for name, value in numbers.items()},
        bucket_limit=[float(x) for x in limits],
        bucket=[float(x) for x in counts],
    )
    return _summary(tag, histo=proto)


# -- pictures ------------------------------------------------------------------------------------------------------


def image(tag: str, value: Any, dataformats: str = "CHW") -> Summary:
    """One picture, or a batch of them laid out in rows of eight; fractions from 0 to 1, or bytes."""
    array = rows_columns_channels(to_array(value), dataformats)
    scale = 1 if array.dtype == np.uint8 else 255
    pixels = (array.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)
    height, width, channels = pixels.shape
    return _summary(tag, image=Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=png(pixels)))


def rows_columns_channels(array: np.ndarray, dataformats: str) -> np.ndarray:
    """Any order of N, C, H and W as (H, W, 3), or (H, W, 4) with transparency."""
    formats = dataformats.upper()
    if len(set(formats)) != len(formats) or not set(formats) <= set("NCHW") or not set("HW") <= set(formats):
        raise ValueError(f"dataformats are the letters N, C, H, W in the order of the dimensions, each once, not {dataformats!r}")
    if len(formats) != array.ndim:
        raise ValueError(f"dataformats {dataformats!r} does not describe an array of shape {array.shape}")
    array = np.einsum(f"{formats}->{''.join(c for c in 'NHWC' if c in formats)}", array)
    array = array if "C" in formats else array[..., None]
    array = _grid(array) if "N" in formats else array
    if array.shape[-1] not in (1, 3, 4):
        raise ValueError(f"a picture has 1, 3 or 4 channels, not {array.shape[-1]}: are the dataformats {dataformats!r} right?")
    return np.broadcast_to(array, (*array.shape[:2], 3)) if array.shape[-1] == 1 else array


def _grid(pictures: np.ndarray, per_row: int = 8) -> np.ndarray:
    """(N, H, W, C) -> one picture, (rows * H, columns * W, C), black where there are too few."""
    n, h, w, c = pictures.shape
    columns = min(n, per_row)
    rows = -(-n // columns)
    filled = np.concatenate([pictures, np.zeros((rows * columns - n, h, w, c), pictures.dtype)])
    return filled.reshape(rows, columns, h, w, c).swapaxes(1, 2).reshape(rows * h, columns * w, c)


def png(pixels: np.ndarray) -> bytes:
    from PIL import Image  # tensorboard depends on Pillow

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def figure_pixels(figure: Any, close: bool = True) -> np.ndarray:
    """What a figure of matplotlib looks like. -> (H, W, 3) bytes"""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.array(canvas.buffer_rgba())[:, :, :3]
    if close:
        import matplotlib.pyplot as plt

        plt.close(figure)
    return pixels


# -- text and hyperparameters --------------------------------------------------------------------------------------


def text(tag: str, value: str) -> Summary:
    """Markdown."""
    metadata = text_metadata.create_summary_metadata(display_name=None, description=None)
    return _summary(
        f"{tag}/text_summary", tensor=tensor_util.make_tensor_proto(np.array([value.encode()], dtype=object)), metadata=metadata
    )


def hparams(options: Mapping[str, Any], metrics: Mapping[str, Any], discrete: Mapping[str, Sequence[Any]] | None = None) -> list[Summary]:
    """Three records: what may vary and what is measured, the options of this run, and that it ended well."""
    if not isinstance(options, dict) or not isinstance(metrics, dict):
        raise TypeError("hparam_dict and metric_dict should be dictionaries.")
    discrete = discrete or {}
    infos, session = [], plugin_data_pb2.SessionStartInfo()
    for name, value in options.items():
        if value is None:
            continue
        value = to_array(value).item() if isinstance(value, (Tensor, np.generic, np.ndarray)) else value
        kind = _field(name, value)
        setattr(session.hparams[name], f"{kind}_value", value)
        info = api_pb2.HParamInfo(name=name, type=getattr(api_pb2, {"number": "DATA_TYPE_FLOAT64"}.get(kind, f"DATA_TYPE_{kind.upper()}")))
        if name in discrete:
            info.domain_discrete.extend(discrete[name])
        infos.append(info)
    unknown = set(discrete) - set(options)
    if unknown:
        raise ValueError(f"hparam_domain_discrete names {sorted(unknown)}, which are not in hparam_dict")
    measured = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in metrics]
    experiment = api_pb2.Experiment(hparam_infos=infos, metric_infos=measured)
    ended = plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_SUCCESS)
    return [
        _hparams_record(hparams_metadata.EXPERIMENT_TAG, experiment=experiment),
        _hparams_record(hparams_metadata.SESSION_START_INFO_TAG, session_start_info=session),
        _hparams_record(hparams_metadata.SESSION_END_INFO_TAG, session_end_info=ended),
    ]


def _field(name: str, value: Any) -> str:
    """How the plugin calls this kind of value."""
    for kind, field in ((bool, "bool"), ((int, float), "number"), (str, "string")):
        if isinstance(value, kind):  # type: ignore[arg-type]
            return field
    raise ValueError(f"hyperparameter {name!r}: it should be one of bool, int, float, str and Tensor, not {type(value).__name__}")


def _hparams_record(tag: str, **content: Any) -> Summary:
    data = plugin_data_pb2.HParamsPluginData(version=hparams_metadata.PLUGIN_DATA_VERSION, **content)
    return _summary(tag, metadata=hparams_metadata.create_summary_metadata(data))
