"""Where PyTorch keeps what Flambeau has: the module that a class or function of ours is said to live in, in files and in the names of classes.

This file imports nothing: the alias `torch` reads it while the package is being imported.
"""

from __future__ import annotations

import re

OURS, THEIRS, VISION = "flambeau", "torch", "torchvision"  # flambeau.vision is torchvision there
# Rooms that PyTorch has too. What lives in another file of ours is a name of the package torch itself (flambeau.tensor.Size: torch.Size).
ROOMS = frozenset(
    """amp ao autograd backends compiler cpu cuda distributed distributions fft func futures hub jit library linalg masked multiprocessing nn
    optim overrides profiler random serialization signal sparse special testing types utils version""".split()
)
# Our file: PyTorch's, where the names differ.
FILES = {
    "ao.nn.quantized.dynamic.cells": "ao.nn.quantized.dynamic.modules.rnn",
    "ao.nn.quantized.dynamic.linear": "ao.nn.quantized.dynamic.modules.linear",
    "ao.nn.quantized.dynamic.rnn": "ao.nn.quantized.dynamic.modules.rnn",
    "ao.nn.quantized.packed": "ao.nn.quantized.modules.linear",
    "modes": "autograd.grad_mode",
    "autograd.nested_function": "autograd.function",
    "nn.modules.hooks": "nn.modules.module",
    "nn.modules.multihead": "nn.modules.activation",
    "nn.modules.state": "nn.modules.module",
    "optim._adafactor": "optim",
    "optim._muon": "optim",
    "tensor.making.parameter": "nn.parameter",
    "tensor.making.pickling": "_utils",
    "generators": "_C",
    "serialization.allowed": "serialization",
    "serialization.options": "serialization",
    "sparse.invariants": "sparse",
    "tensor.memory.typed_storage": "storage",
    "tensor.memory.untyped_storage": "storage",
    "utils.selective_checkpoint": "utils.checkpoint",
}
# Names that live elsewhere than their neighbours: (our file, name): PyTorch's file.
NAMES = {
    ("tensor.node", "Node"): "autograd.graph",
    ("tensor.node", "RemovableHandle"): "utils.hooks",
    ("distributions.distribution", "ExponentialFamily"): "distributions.exp_family",
    ("exception_wrapper", "ExceptionWrapper"): "_utils",
    ("nn.modules.backward_hooks", "BackwardHook"): "utils.hooks",
    ("tensor.making.parameter", "_rebuild_parameter"): "_utils",
    ("tensor.making.parameter", "_rebuild_parameter_with_state"): "_utils",
    ("tensor.making.pickling", "_rebuild_from_type_v2"): "_tensor",
    ("serialization.saving", "_get_layout"): "serialization",
}
# PyTorch has a file for each distribution, we have one for each family; the file is named after the class, with these exceptions.
FAMILIES = frozenset(f"distributions.{family}" for family in "choices counting derived location_scale positive vectors wrappers".split())
DISTRIBUTIONS = {
    "FisherSnedecor": "fishersnedecor",
    "LKJCholesky": "lkj_cholesky",
    "LowRankMultivariateNormal": "lowrank_multivariate_normal",
    "RelaxedOneHotCategorical": "relaxed_categorical",
    "OneHotCategoricalStraightThrough": "one_hot_categorical",
    "StudentT": "studentT",
}


def torch_home(module: str, name: str) -> str:
    """The module under which PyTorch has what is called `name` in a module of ours."""
    package, _, inside = module.partition(".")
    if package != OURS:
        return module
    if inside.partition(".")[0] == "vision":
        return VISION + inside.removeprefix("vision")
    if inside in FAMILIES and name[:1].isupper():
        return f"{THEIRS}.distributions.{DISTRIBUTIONS.get(name) or _in_small_letters(name)}"
    inside = NAMES.get((inside, name)) or FILES.get(inside) or (inside if inside.partition(".")[0] in ROOMS else "")
    return f"{THEIRS}.{inside}" if inside else THEIRS


def _in_small_letters(name: str) -> str:
    """HalfCauchy: half_cauchy."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
