"""Samples on whatever device they are wanted: the CPU's samplers, or those of the CUDA room, from a generator that fits.

A tensor that is not contiguous is filled in the order of its memory, as PyTorch does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau import devices
from flambeau.generators import Generator, default_generator
from flambeau.kernels import arrays, layout
from flambeau.kernels.meta import MetaArray
from flambeau.kernels.random import sampling


def source(generator: Any, device: Any) -> Generator:
    """The generator to draw from: the one given, which must be of the device, or the device's default."""
    if generator is None:
        return default_generator if device.type != "cuda" else arrays.cuda().default_generator(device)
    if not isinstance(generator, Generator):
        raise TypeError(f"argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    if device.type not in ("meta", str(generator.device).partition(":")[0]):
        raise RuntimeError(f"Expected a '{device.type}' device type for generator but found '{generator.device}'")
    return generator


def draw(kind: str, generator, shape, dtype, device, **parameters):
    """A fresh contiguous array of samples; `kind` names a function of `kernels/random/sampling.py`."""
    if device is devices.cpu or device.type == "cpu":
        drawn_from = default_generator if generator is None else source(generator, device)
        return getattr(sampling, kind)(drawn_from, shape, dtype=dtype, **parameters)
    generator = source(generator, device)
    if device.type == "meta":
        return MetaArray(shape, dtype)
    return arrays.cuda().draw(kind, generator, shape, dtype, device, **parameters)


def fill(kind: str, out, generator, **parameters) -> None:
    """Overwrite an array with samples, in the order of its memory. Parameters that are arrays go along with it."""
    if type(out) is MetaArray:
        return
    if type(out) is np.ndarray and kind in sampling.INTO and out.flags.carray and out.size:
        drawn_from = default_generator if generator is None else source(generator, devices.cpu)
        drawn = getattr(sampling, kind)(drawn_from, out.shape, dtype=out.dtype, out=out, **parameters)
        if drawn is not out:
            arrays.write(out, drawn)
        return
    device = arrays.device_of(out)
    if (out.flags.c_contiguous and out.size) if type(out) is np.ndarray else layout.is_contiguous(*arrays.view_of(out)):
        arrays.write(out, draw(kind, generator, out.shape, out.dtype, device, **parameters))
        return
    order = sorted(range(out.ndim), key=lambda axis: -out.strides[axis])
    if kind == "normal":
        parameters["contiguous"] = False
    parameters = {name: _reordered(p, out.shape, order) for name, p in parameters.items()}
    ordered = out.transpose(order)
    arrays.write(ordered, draw(kind, generator, ordered.shape, out.dtype, device, **parameters))


def _reordered(parameter, shape, order):
    if not hasattr(parameter, "strides"):
        return parameter
    strides = layout.broadcast_strides(parameter.shape, arrays.element_strides(parameter), shape)
    return arrays.strided_view(parameter, shape, strides).transpose(order)


def room(array, on_cpu):
    """Where the samplers for an array are: in the module given, or in the CUDA room."""
    return on_cpu if arrays.device_of(array).type == "cpu" else arrays.cuda()


def drops_at_once(array) -> bool:
    """Whether there is a kernel that draws, masks and scales: of a GPU, for arrays without gaps."""
    return arrays.on_gpu(array) and layout.is_non_overlapping_and_dense(*arrays.view_of(array))


def dropped(array, keep: float, scale: float) -> tuple:
    """(array * scale where a number drawn for it is at most `keep`, else 0; which those are), in that kernel."""
    return arrays.cuda().dropout(source(None, arrays.device_of(array)), array, keep, scale)
