"""Where in the model it went wrong: an exception raised inside a `forward` is told which module it left.

    RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x2 and 30x5)
    in encoder.layers.3.fc2: Linear(30 -> 5), called from train.py:41
        input   (3, 2) float32 cpu
        weight  (5, 30) float32 cpu
        bias    (5,) float32 cpu

The innermost module writes the note; on the way up, every module that was called puts in front the name it knows the inner one by. Nothing
of this runs, and nothing is prepared for it, while nothing is raised.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

from flambeau.tensor import Tensor

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
LONGEST = 12  # operands that are shown


class Trail:
    """The note on an exception that is on its way up: the module it left last, the path from there to the innermost, and the rest."""

    def __init__(self, module: Any, problem: Exception, args: tuple, kwargs: dict):
        self.module, self.path = module, ""
        self.title, self.where = describe(module), user_line(problem)
        self.operands = [*operands(module, args, kwargs), *(strays(module) if "same device" in str(problem) else ())]
        self.note = ""

    def write(self, problem: Exception) -> None:
        """Put the note, as far as it is known by now, in the place of the one before."""
        notes = getattr(problem, "__notes__", [])
        if self.note in notes:
            notes.remove(self.note)
        title = f"{self.path}: {self.title}" if self.path else self.title
        self.note = "\n".join([f"in {title}{self.where}", *self.operands])
        problem.add_note(self.note)


def leave(module: Any, problem: Exception, args: tuple, kwargs: dict) -> None:
    """Called by a module that `problem` leaves."""
    trail = problem.__dict__.get("_module_trail")
    if trail is None:
        trail = Trail(module, problem, args, kwargs)
        problem._module_trail = trail  # type: ignore[attr-defined]
    elif trail.module is not module:
        step = name_in(module, trail.module)
        trail.path = ".".join(part for part in (step, trail.path) if part)
        trail.module = module
    else:
        return
    trail.write(problem)


def name_in(module: Any, inner: Any) -> str:
    """The path from a module to one inside it, "" if it is not registered there."""
    return next((name for name, candidate in module.named_modules(remove_duplicate=False) if candidate is inner), "")


def describe(module: Any) -> str:
    """A module in a few words: Linear(30 -> 5)."""
    name = type(module).__name__
    for kind in ("features", "channels"):
        sizes = [vars(module).get(f"{side}_{kind}") for side in ("in", "out")]
        if None not in sizes:
            return f"{name}({sizes[0]} -> {sizes[1]})"
    try:
        extra = module.extra_repr()
    except Exception:  # a module that cannot even describe itself must not hide the first problem
        extra = ""
    return f"{name}({extra})" if extra and len(extra) < 80 and "\n" not in extra else name


def operands(module: Any, args: tuple, kwargs: dict):
    """A line for each argument and for each of the module's own parameters and buffers."""
    code = getattr(type(module).forward, "__code__", None)
    names = code.co_varnames[1 : code.co_argcount] if code is not None else ()
    found = {names[i] if i < len(names) else f"args[{i}]": value for i, value in enumerate(args)}
    found.update(kwargs)
    for registry in (module._parameters, module._buffers):
        found.update({name: value for name, value in registry.items() if value is not None and name not in found})
    shown = list(found.items())[:LONGEST]
    width = max((len(name) for name, _ in shown), default=0) + 2
    for name, value in shown:
        yield f"    {name:<{width}}{look(value)}"


def strays(module: Any):
    """What to do about tensors that did not move with the model: those that are plain attributes, or were made in `forward`."""
    known = {*module._parameters, *module._buffers}
    plain = [name for name, value in vars(module).items() if isinstance(value, Tensor) and name not in known]
    for name in plain:
        yield f"    {name} is a plain attribute, {look(vars(module)[name])}: self.register_buffer({name!r}, ...) makes it move with the model"
    if not plain and type(module).__module__.partition(".")[0] not in ("flambeau", "torch"):
        yield "    try: a tensor made in forward takes device=x.device; a constant is kept with self.register_buffer(name, tensor)"
    elif not plain:
        yield "    try: model.to(device) once, and .to(device) for every batch"


def look(value: Any) -> str:
    """A value in a few words: shape, dtype and device of a tensor, the type of anything big."""
    if isinstance(value, Tensor):
        try:
            return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')} {value.device}"
        except Exception:  # a lazy parameter has no shape yet, and no tensor of anybody's own may hide the first problem
            return type(value).__name__
    if isinstance(value, (tuple, list)) and any(isinstance(v, Tensor) for v in value):
        inside = ", ".join(look(v) for v in value[:4]) + (", ..." if len(value) > 4 else "")
        return f"{type(value).__name__} of {len(value)}: {inside}"
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return type(value).__name__


def user_line(problem: Exception) -> str:
    """ ", called from train.py:41": the innermost line on the way to the exception that is not ours, or whoever called us."""
    found = None
    step = problem.__traceback__
    while step is not None:
        if not ours(step.tb_frame):
            found = step.tb_frame.f_code.co_filename, step.tb_lineno
        step = step.tb_next
    frame: FrameType | None = sys._getframe(1)
    while found is None and frame is not None:
        if not ours(frame):
            found = frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return f", called from {found[0]}:{found[1]}" if found else ""


def ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(PACKAGE)
