"""The alias: one module under two names, what is said about missing names, and the small rooms that programs expect to find."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import os
import pickle
import subprocess
import sys
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from pathlib import Path

import pytest
from flambeau.torch_version import TorchVersion

import flambeau
import flambeau.compat
from flambeau.compat import alias, children

torch = pytest.importorskip("torch")

CLASSES = """
import torch.nn.utils.prune, torch.utils.data
CLASSES = [(torch, name) for name in "Tensor Size dtype device Generator finfo layout memory_format FloatTensor UntypedStorage".split()]
CLASSES += [(torch.nn, name) for name in "Module Linear Parameter MultiheadAttention Sequential CrossEntropyLoss LSTM".split()]
CLASSES += [(torch.optim, name) for name in "Optimizer AdamW Muon LBFGS".split()]
CLASSES += [(torch.optim.lr_scheduler, name) for name in "StepLR OneCycleLR".split()]
CLASSES += [(torch.utils.data, name) for name in "DataLoader TensorDataset Subset RandomSampler".split()]
CLASSES += [(torch.utils.hooks, "RemovableHandle"), (torch.autograd, "Function"), (torch.autograd.graph, "Node"), (torch, "no_grad")]
CLASSES += [(torch.amp, "GradScaler"), (torch.nn.utils.prune, "L1Unstructured"), (torch.nn.utils.rnn, "PackedSequence")]
CLASSES += [(torch.distributions, name) for name in sorted(torch.distributions.__all__) if isinstance(getattr(torch.distributions, name), type)]
"""
# PyTorch is in the process of the tests, so the alias is tried in another one, which reports what it saw.
TRIAL = """
import importlib, importlib.metadata, importlib.util, json, os, pickle, sys, threading
import flambeau, flambeau.compat
before = dict(os.environ)
found = {"own version": flambeau.__version__}
with flambeau.compat.install_as_torch():
    import torch
    import torch.nn.functional as F
    import torch.optim as optim
    from torch import nn, optim as same_optim
    from torch.nn.modules.linear import Linear
    import torch.nn.modules.conv as conv
    import torch.random, torch.storage, torch.cuda.amp, torch.utils.data
    import torchvision, torchvision.transforms as transforms
    from torchvision.datasets import FashionMNIST
    found["one object"] = [
        torch is flambeau, F is flambeau.nn.functional, optim is same_optim is flambeau.optim, Linear is flambeau.nn.Linear,
        conv is sys.modules["flambeau.nn.modules.conv"], torch.random is flambeau.random, torch.storage is flambeau.storage,
        isinstance(flambeau.ones(1), torch.Tensor), importlib.import_module("torch.fft") is flambeau.fft,
        torchvision is flambeau.vision, transforms is flambeau.vision.transforms, FashionMNIST is flambeau.vision.datasets.FashionMNIST,
        torch.cuda.amp.GradScaler is not None, importlib.metadata.version("torchvision") == flambeau.version.torchvision_version,
    ]
    modules = [m for name, m in list(sys.modules.items()) if name.split(".")[0] == "flambeau"]
    found["own names"] = [m.__name__ for m in modules if m.__spec__ is None or m.__spec__.name != m.__name__ or m.__name__[:8] != "flambeau"]
    found["the package's name"] = [torch.__name__, torch.__spec__.name, torch.__package__]
    found["pickles"] = pickle.loads(pickle.dumps(nn.Linear(2, 1)))(torch.ones(1, 2)).shape == (1, 1)
    found["pickles by torch names"] = pickle.loads(b"ctorch.nn.modules.linear\\nLinear\\n.") is Linear
    found["versions"] = [torch.__version__, importlib.metadata.version("torch"), flambeau.version.flambeau_version, torch.version.cuda]
    found["version is text"] = isinstance(torch.__version__, str) and torch.__version__ >= "2.8" and torch.__version__ >= (2, 13)
    found["specs"] = [importlib.util.find_spec(name) is not None for name in ("torch", "torch.nn", "torch.utils.hooks", "torch.no_room")]
    found["reload"] = [importlib.reload(torch) is flambeau, torch.__version__, torch.ones(1).item(), importlib.reload(F) is F]
    from torch.nn.modules.activation import MultiheadAttention
    exec(sys.argv[1])
    kinds = [getattr(room, name) for room, name in CLASSES]
    found["classes"] = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds]
    found["classes pickle"] = all(pickle.loads(pickle.dumps(kind)) is kind for kind in kinds)
    errors = {}
    for code in (
        "import torch.no_room", "import torch.no_room.inner", "from torch import no_name", "from torch.nn import NoLayer",
        "from torch.nn.functional import no_function", "torch.no_name", "torch.nn.functional.no_function", "torch.backends.no_library",
        "import torchvision.no_part", "from torch.optim.no_file import X", "torch.optim.lr_scheduler.NoLR",
    ):
        try:
            exec(code, {"torch": torch})
        except Exception as problem:
            errors[code] = [type(problem).__name__, str(problem), getattr(problem, "name", None)]
    found["errors"] = errors
    try:
        torch.__no_dunder__
    except AttributeError as problem:
        found["dunder"] = str(problem)
    imported = []
    threads = [threading.Thread(target=lambda: imported.append(importlib.import_module("torch.testing"))) for _ in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]
    found["threads"] = len(set(map(id, imported))) == 1 and len(imported) == 8
    flambeau.compat.install_as_torch()
    found["twice"] = sum("Alias" in type(f).__name__ for f in sys.meta_path)
    found["children are told"] = os.environ["FLAMBEAU_AS_TORCH"]
found["gone"] = [n for n in sys.modules if n.split(".")[0] in ("torch", "torchvision")], os.environ == before, flambeau.compat.is_installed()
found["own classes again"] = [flambeau.Tensor.__module__, nn.Linear.__module__]
found["own version again"] = flambeau.__version__
found["own name again"] = flambeau.__name__
try:
    flambeau.no_name
except AttributeError as problem:
    found["plain error"] = str(problem)
try:
    flambeau.nn.functional.no_name
except AttributeError as problem:
    found["plain error of a room"] = str(problem)
sys.modules["torch"] = type(sys)("torch")
try:
    flambeau.compat.install_as_torch()
except RuntimeError as problem:
    found["refused"] = str(problem)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict:
    """What the trial saw."""
    clean = {name: value for name, value in os.environ.items() if name != "FLAMBEAU_AS_TORCH"}
    env = clean | {"PYTHONPATH": str(Path(flambeau.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", TRIAL, CLASSES], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_one_module_under_two_names(found):
    """A torch name gives another object than the flambeau name, or a module other than the package has lost its own name or spec."""
    assert all(found["one object"]) and found["own names"] == ["torch"]
    assert found["the package's name"] == ["torch", "flambeau", "flambeau"] and found["own name again"] == "flambeau"
    assert found["pickles"] and found["pickles by torch names"] and found["threads"]


def test_classes_are_called_what_pytorchs_are(found):
    """print(type(x)), and libraries that look at `__module__`; such names can be pickled, and go when the alias goes."""
    exec(CLASSES, {"torch": torch}, names := {})
    assert found["classes"] == [f"{kind.__module__}.{kind.__qualname__}" for kind in (getattr(*pair) for pair in names["CLASSES"])]
    assert found["classes pickle"] and found["own classes again"] == ["flambeau.tensor.tensor", "flambeau.nn.modules.linear"]


def test_versions(found):
    """torch has PyTorch's version, which compares as one, and Flambeau's own stays known; afterwards all is as before."""
    assert found["versions"] == ["2.13.0+flambeau", "2.13.0", found["own version"], flambeau.version.cuda] and found["version is text"]
    assert found["own version"] == found["own version again"] == flambeau.version.flambeau_version


def test_asking_and_reloading_is_harmless(found):
    """find_spec must say what is there without raising; a reload must give the same working module."""
    assert found["specs"] == [True, True, True, False]
    assert found["reload"] == [True, "2.13.0+flambeau", 1.0, True]


def test_missing_names_are_named(found):
    """An error about something missing must have PyTorch's type and say which name of torch it is."""
    errors = found["errors"]
    expected = {
        "import torch.no_room": ("ModuleNotFoundError", "torch.no_room"),
        "import torch.no_room.inner": ("ModuleNotFoundError", "torch.no_room"),
        "from torch import no_name": ("ImportError", "torch.no_name"),
        "from torch.nn import NoLayer": ("ImportError", "torch.nn.NoLayer"),
        "from torch.nn.functional import no_function": ("ImportError", "torch.nn.functional.no_function"),
        "torch.no_name": ("AttributeError", "torch.no_name"),
        "torch.nn.functional.no_function": ("AttributeError", "torch.nn.functional.no_function"),
        "torch.backends.no_library": ("AttributeError", "torch.backends.no_library"),
        "from torch.optim.no_file import X": ("ModuleNotFoundError", "torch.optim.no_file"),
        "import torchvision.no_part": ("ModuleNotFoundError", "torchvision.no_part"),
        "torch.optim.lr_scheduler.NoLR": ("AttributeError", "torch.optim.lr_scheduler.NoLR"),
    }
    for code, (kind, name) in expected.items():
        assert errors[code][0] == kind and errors[code][1].startswith(f"{name} is not in Flambeau yet"), code
    assert errors["import torch.no_room"][2] == "torch.no_room" and errors["torch.no_name"][2] == "no_name"
    assert found["dunder"] == "module 'torch' has no attribute '__no_dunder__'"


def test_it_comes_and_goes(found):
    """Installing twice is once; after uninstalling nothing is left, in this process or for its children."""
    assert found["twice"] == 1 and found["children are told"] == "1" and found["gone"] == [[], True, False]
    assert (
        "torch" not in found["plain error"]
        and found["plain error of a room"] == "module 'flambeau.nn.functional' has no attribute 'no_name'"
    )


def test_it_refuses_to_replace_pytorch(found):
    """Where PyTorch has been imported already, torch cannot become Flambeau, and the error says what to do."""
    assert "restart the kernel" in found["refused"]
    before = dict(os.environ)
    with pytest.raises(RuntimeError, match="torch has been imported already"):
        flambeau.compat.install_as_torch()
    assert os.environ == before and not flambeau.compat.is_installed() and sys.modules["torch"] is torch


def test_names_there_and_back():
    """A torch name and the module behind it must belong to each other."""
    for name in ("torch", "torch.nn.functional", "torch.random", "torch.storage", "torchvision", "torchvision.transforms"):
        assert alias.torch_name(alias.real_name(name)) == name
    assert alias.torch_name("flambeau.storage") is None and alias.torch_name("numpy") is None


def test_children_are_told_by_the_environment():
    """PYTHONPATH must begin with the folder, once, keep the rest, and be as before afterwards."""
    for before in ({}, {"PYTHONPATH": "/a:/b"}, {"PYTHONPATH": "", "X": "1"}):
        env = dict(before)
        children.tell(env)
        children.tell(env)
        folders = env["PYTHONPATH"].split(os.pathsep)
        assert folders[0] == children.STARTUP and folders[1:] == [f for f in before.get("PYTHONPATH", "").split(":") if f]
        children.forget(env)
        assert env == {name: value for name, value in before.items() if value}


# -- rooms that programs expect ----------------------------------------------------------------------------------------------------------

VERSIONS = ["1.0", "1.0.0", "1.10.2", "1.9", "2.0.0a0", "2.0.0rc1", "2.0.0.dev20230101", "2.0.0", "2.0.0+cpu", "2.0.0+cu118", "2.0.0.post1", "2.13.0", "v3"]  # fmt: skip


def test_versions_compare_as_pytorchs():
    """A version compares with strings and tuples otherwise than in PyTorch."""
    from torch.torch_version import TorchVersion as Oracle

    for a, b in itertools.product(VERSIONS, [*VERSIONS, (2, 0), (2, 13, 0), (1,), "parrot"]):
        for compare in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__"):
            assert getattr(TorchVersion(a), compare)(b) == getattr(Oracle(a), compare)(b), (a, compare, b)


Pair = namedtuple("Pair", "x y")
TREES = [
    5, None, [], [1, (2, 3)], {"b": 1, "a": [2, None]}, Pair(1, {"z": 2}), deque([1, 2], maxlen=3), OrderedDict(q=1), defaultdict(list, {1: [7]}),
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_trees_are_taken_apart_as_pytorchs(tree):
    """Leaves, paths or what is put together again differ from torch.utils._pytree's."""
    from torch.utils import _pytree as theirs

    from flambeau.utils import _pytree as ours

    (leaves, spec), (expected, expected_spec) = ours.tree_flatten(tree), theirs.tree_flatten(tree)
    assert leaves == expected and (spec.num_leaves, spec.num_nodes) == (expected_spec.num_leaves, expected_spec.num_nodes)
    assert repr(spec) == repr(expected_spec)
    assert ours.tree_unflatten(leaves, spec) == tree and type(ours.tree_unflatten(leaves, spec)) is type(tree)
    paths = [[(m.keystr(path), leaf) for path, leaf in m.tree_flatten_with_path(tree)[0]] for m in (ours, theirs)]
    assert paths[0] == paths[1]
    pairs = [m.tree_map(lambda a, b: (a, b), tree, tree) for m in (ours, theirs)]
    assert pairs[0] == pairs[1]


def test_trees_of_registered_classes():
    """A class that was registered is taken apart; trees that do not fit are refused."""
    from flambeau.utils import _pytree as pytree

    class Box:
        def __init__(self, inside):
            self.inside = inside

    pytree.register_pytree_node(Box, lambda box: ([box.inside], None), lambda items, _: Box(*items))
    try:
        assert pytree.tree_map(lambda x: -x, Box([1, 2])).inside == [-1, -2]
        with pytest.raises(ValueError, match="already registered"):
            pytree.register_pytree_node(Box, None, None)
    finally:
        del pytree.SUPPORTED_NODES[Box]
    assert pytree.tree_leaves(Box(1))[0].inside == 1
    assert pytree.tree_map_only(int, lambda x: x + 1, [1, "a", 2.0]) == [2, "a", 2.0]
    for wrong in ([1], {"a": 1}, (1, 2)):
        with pytest.raises(ValueError, match="mismatch"):
            pytree.tree_map(lambda a, b: a, [1, 2], wrong)
    with pytest.raises(ValueError, match="holds 2 items"):
        pytree.tree_unflatten([1], pytree.tree_structure([1, 2]))


def quantized(t, value):
    return t.quantize_per_tensor(t.tensor([float(value)]), 1.0, 0, t.qint32)


PAIRS = [
    lambda t: (t.tensor([1.0, 2, 3]), t.tensor([1.0, 2.5, 3])), lambda t: (t.tensor([1, 2]), t.tensor([1, 4])),
    lambda t: (t.ones(2), t.ones(2).double()), lambda t: (t.ones(2), t.ones(3)), lambda t: (t.ones(2), 1.0), lambda t: (1.0, 1.1),
    lambda t: (1, 2), lambda t: (True, False), lambda t: (1.0, 1), lambda t: ([t.ones(2), t.zeros(1)], [t.ones(2), t.ones(1)]),
    lambda t: ({"a": 1.0}, {"b": 1.0}), lambda t: ([1, 2], [1]), lambda t: ({"a": [1.0]}, {"a": [2.0]}), lambda t: ("a", "a"),
    lambda t: (None, None), lambda t: (t.tensor(float("nan")), t.tensor(float("nan"))), lambda t: (t.tensor([True]), t.tensor([False])),
    lambda t: (t.tensor([float("inf")]), t.tensor([float("inf")])), lambda t: (t.zeros(0), t.zeros(0)), lambda t: (1 + 1j, 1 + 2j),
    lambda t: (t.ones(2).bfloat16(), t.ones(2).bfloat16() * 1.01), lambda t: (t.ones(1, device="meta"), t.ones(1)),
    lambda t: (None, 3), lambda t: ([1.0], None), lambda t: (t.tensor([2**60, 1]), t.tensor([2**60 + 1, 1])),
    *[lambda t, to=to: (getattr(t.eye(2), to)(), getattr(2 * t.eye(2), to)()) for to in ("to_sparse", "to_sparse_csr", "to_sparse_csc")],
    *[lambda t, to=to: (getattr(t.eye(2), to)(), getattr(t.eye(2).flip(0), to)()) for to in ("to_sparse", "to_sparse_csr", "to_sparse_csc")],
    lambda t: (t.eye(2).to_sparse(), t.ones(2, 2).to_sparse()), lambda t: (t.eye(2).to_sparse(), t.eye(2)),
    lambda t: (t.eye(4).to_sparse_bsr((2, 2)), t.eye(4).to_sparse_bsr((2, 2)) * 2), lambda t: (quantized(t, 1), t.ones(1)),
    lambda t: (quantized(t, 1), quantized(t, 2)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse .* is in beta state", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("make", PAIRS, ids=map(str, range(len(PAIRS))))
@pytest.mark.parametrize("options", [{}, {"rtol": 0.2, "atol": 0.2}, {"check_dtype": False, "equal_nan": True}], ids=str)
def test_assert_close_is_pytorchs(make, options):
    """assert_close accepts, refuses or explains otherwise than PyTorch's."""
    told = []
    for framework in (torch, flambeau):
        try:
            framework.testing.assert_close(*make(framework), **options)
            told.append("close")
        except (AssertionError, TypeError) as problem:
            told.append(f"{type(problem).__name__}: {problem}".replace("flambeau.tensor.tensor.", "torch."))
    assert told[0] == told[1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float8_e5m2", "int64", "uint8", "int8", "bool", "complex64"])
def test_made_tensors_are_pytorchs(dtype):
    """make_tensor gives other values, strides or errors for the same seed."""
    for options in ({}, {"low": 0, "high": 3}, {"low": -1, "high": 2, "exclude_zero": True}, {"noncontiguous": True}):
        if (dtype == "bool" and "low" in options) or (dtype == "float8_e5m2" and "exclude_zero" in options):
            continue
        made = []
        for framework in (torch, flambeau):
            framework.manual_seed(3)
            made.append(framework.testing.make_tensor(3, 4, dtype=getattr(framework, dtype), device="cpu", **options))
        assert made[0].tolist() == made[1].tolist() and made[0].stride() == made[1].stride()
    if dtype.startswith(("float", "complex")):
        with pytest.warns(FutureWarning, match="low==high"):
            flambeau.testing.make_tensor(2, dtype=getattr(flambeau, dtype), device="cpu", low=3, high=3)
    with pytest.raises(ValueError, match="must be less than"):
        flambeau.testing.make_tensor(2, dtype=flambeau.int64, device="cpu", low=3, high=3)


def test_switches_of_libraries():
    """A switch of torch.backends has another default than PyTorch's, or does not keep what it is set to."""
    for room, names in {
        "cudnn": "enabled benchmark benchmark_limit deterministic allow_tf32",
        "mkldnn": "enabled deterministic",
        "cuda.matmul": "allow_tf32 allow_fp16_reduced_precision_reduction allow_bf16_reduced_precision_reduction allow_fp16_accumulation",
    }.items():
        ours, theirs = flambeau.backends, torch.backends
        for part in room.split("."):
            ours, theirs = getattr(ours, part), getattr(theirs, part)
        assert {n: getattr(ours, n) for n in names.split()} == {n: getattr(theirs, n) for n in names.split()}
    cudnn, matmul = flambeau.backends.cudnn, flambeau.backends.cuda.matmul
    with cudnn.flags(enabled=True, benchmark=True):
        assert cudnn.benchmark
    assert not cudnn.benchmark
    assert cudnn.set_flags(_benchmark=True) == torch.backends.cudnn.set_flags()
    assert cudnn.set_flags(_benchmark=False)[1] is True
    assert matmul.fp32_precision == "none"
    for allowed, word, precision in ((True, "tf32", "high"), (False, "ieee", "highest")):
        matmul.allow_tf32 = allowed
        assert (matmul.fp32_precision, flambeau.get_float32_matmul_precision()) == (word, precision)
    matmul.fp32_precision = "none"
    with pytest.raises(AttributeError):
        matmul.allow_tf33 = True
    assert flambeau.cuda._initialized is flambeau.cuda.is_initialized() is False
    for function, choices in {
        "preferred_linalg_library": (None, "default", "magma", "nonsense"),
        "preferred_blas_library": (None, "cublas", "cublaslt", "nonsense"),
    }.items():
        for choice in choices:
            refused = []
            for t in (flambeau, torch):
                try:
                    getattr(t.backends.cuda, function)(choice)
                except RuntimeError as problem:
                    refused.append(str(problem)[:30])
            assert len(refused) in (0, 2), (function, choice, refused)
    assert not flambeau.backends.mps.is_available() and not flambeau.backends.mkl.is_available()
    with pytest.warns(FutureWarning, match="sdpa_kernel"):
        without_flash = flambeau.backends.cuda.sdp_kernel(enable_flash=False)
    with without_flash:
        assert not flambeau.backends.cuda.flash_sdp_enabled() and flambeau.backends.cuda.math_sdp_enabled()
    assert flambeau.backends.cuda.flash_sdp_enabled()


def test_marks_for_compilers_change_nothing():
    """A decorator that programs carry for a compiler changes the function, or a question is answered with yes."""
    jit, compiler = flambeau.jit, flambeau.compiler

    def function():
        return 3

    for mark in (jit.ignore, jit.ignore(drop=True), jit.unused, jit.export, compiler.disable, compiler.disable(), compiler.allow_in_graph):
        assert mark(function) is function
    assert not (jit.is_scripting() or jit.is_tracing() or compiler.is_compiling() or compiler.is_exporting())
    assert jit.annotate(list[int], [1]) == [1] and not isinstance(flambeau.nn.Linear(1, 1), flambeau.ScriptModule)
    for value, kind in (
        ([1], list[int]),
        ([1, "a"], list[int]),
        (None, int | None),
        ({"a": [1]}, dict[str, list[int]]),
        ((1, "a"), tuple[int, str]),
    ):
        assert jit.isinstance(value, kind) == torch.jit.isinstance(value, kind), (value, kind)
    for missing in (jit.load, jit.save, jit.ScriptFunction):
        with pytest.raises(NotImplementedError, match="TorchScript"):
            missing(function)


def test_scripts_and_traces_run_as_they_are(monkeypatch):
    """A scripted or traced function is not the function, or nobody is told that nothing was compiled, or is told every time."""
    jit = flambeau.jit

    def double(x):
        return x * 2

    monkeypatch.setattr(jit, "_told", False)
    with pytest.warns(UserWarning, match="no TorchScript"):
        assert jit.script(double) is double
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jit.trace(double, flambeau.ones(2)) is double
    with pytest.raises(ZeroDivisionError):  # tracing runs the function: what cannot run fails there, as in PyTorch
        jit.trace(lambda x: x * (1 // 0), (flambeau.ones(2),))

    class Scaled(jit.ScriptModule):
        @jit.script_method
        def forward(self, x):
            return x * 3

    assert Scaled()(flambeau.ones(1)).item() == 3
    branching = jit.trace(lambda x: x * 2 if x.sum() > 0 else x, flambeau.ones(2))
    assert branching(-flambeau.ones(1)).item() == -1  # decided anew, and the documents say so
    with pytest.raises(NotImplementedError, match="no TorchScript"):
        double.save("double.pt")
    with pytest.raises(AttributeError, match=r"'Linear' object has no attribute 'save': .* without TorchScript"):
        jit.script(flambeau.nn.Linear(1, 1)).save("linear.pt")
    with pytest.raises(RuntimeError, match="eval mode"):
        jit.freeze(flambeau.nn.Linear(1, 1))


def test_compile_runs_the_program(monkeypatch):
    """A compiled module or function gives other results, hides its module, or nobody is told that nothing is fused."""
    from flambeau.compiler import eagerly

    for kind in ("forward", "forward_pre", "backward", "backward_pre"):  # libraries leave some in real PyTorch, which warns of them
        monkeypatch.setattr(torch.nn.modules.module, f"_global_{kind}_hooks", {})

    def look(t, compiled, module):
        x = t.arange(6.0).reshape(3, 2)
        before = (type(compiled).__name__, list(compiled.state_dict()), compiled.training, compiled.in_features, repr(compiled))
        compiled.eval()
        compiled.mark = 7
        return (
            *before,
            module.training,
            module.mark,
            compiled(x).equal(module(x)),
            [p is q for p, q in zip(compiled.parameters(), module.parameters(), strict=True)],
        )

    ours, theirs = [(t, t.nn.Linear(2, 1)) for t in (flambeau, torch)]
    assert look(flambeau, flambeau.compile(ours[1], backend="eager"), ours[1]) == look(
        torch, torch.compile(theirs[1], backend="eager"), theirs[1]
    )

    monkeypatch.setattr(eagerly, "_told", False)
    with pytest.warns(UserWarning, match="no compiler yet"):

        @flambeau.compile(mode="max-autotune")
        def double(x):
            return x * 2

    assert double(flambeau.ones(1)).item() == 2 and double.__name__ == "double"
    assert flambeau.compile(ours[1], disable=True) is ours[1]
    for right in ({"max_autotune": True}, {"triton.cudagraphs": True, "epilogue-fusion": False}):
        flambeau.compile(flambeau.nn.Identity(), options=right)
    for wrong in (
        {"mode": "fast"},
        {"mode": "default", "options": {}},
        {"backend": "nonsense"},
        {"fullgraph": True, "options": {"nonsense": 1}},
    ):
        for t in (flambeau, torch):
            with pytest.raises(RuntimeError):
                t.compile(t.nn.Identity(), **wrong)


def test_questions_about_processes():
    """A program that asks whether it is one of several processes does not run alone, or DataParallel is not a wrapper."""
    dist = flambeau.distributed
    assert not (dist.is_available() and dist.is_initialized()) and not dist.is_initialized()
    for t in (flambeau, torch):
        with pytest.raises(ValueError, match="Default process group has not been initialized"):
            importlib.import_module(f"{t.__name__}.distributed").get_rank()
        with pytest.raises(ValueError, match="environment variable RANK expected, but not set"):
            importlib.import_module(f"{t.__name__}.distributed").init_process_group("gloo")
    if not flambeau.cuda.is_available():
        found = [
            (repr(p), list(p.state_dict()), p.device_ids, tuple(p(t.ones(2, 3)).shape))
            for t in (flambeau, torch)
            for p in [t.nn.DataParallel(t.nn.Linear(3, 2))]
        ]
        assert found[0] == found[1]
    parallel = flambeau.nn.parallel
    assert not isinstance(flambeau.nn.Linear(1, 1), (flambeau.nn.DataParallel, parallel.DistributedDataParallel))


def test_devices_that_nobody_has_here():
    """Programs that look for another maker's GPU are not told that there is none, or its absence is another error than PyTorch's."""
    for name in ("xpu", "mps"):
        answers = []
        for t in (flambeau, torch):
            room = importlib.import_module(f"{t.__name__}.{name}")
            with pytest.raises((AssertionError, RuntimeError)) as caught:
                room.synchronize()
            answers.append((room.is_available(), room.device_count(), room.manual_seed(0), caught.type))
        assert answers[0] == answers[1]
    if not flambeau.cuda.is_available():
        with pytest.raises(TypeError, match="not available"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flambeau.set_default_tensor_type("torch.cuda.FloatTensor")
        assert flambeau.get_default_device().type == "cpu"


def test_devices_spoken_to_in_general():
    """torch.cpu, torch.accelerator and get_device_module answer otherwise than PyTorch where there is no GPU."""
    assert flambeau.get_device_module("cpu") is flambeau.cpu and flambeau.get_device_module("cuda") is flambeau.cuda
    assert flambeau.cpu.device_count() == 1 and flambeau.cpu.current_device() == "cpu" and flambeau.cpu.synchronize() is None
    if not flambeau.cuda.is_available():
        assert flambeau.accelerator.current_accelerator() is None and flambeau.accelerator.device_count() == 0
        with pytest.raises(RuntimeError, match="none is available"):
            flambeau.accelerator.synchronize()
        assert flambeau.get_device_module() is flambeau.cpu


def test_functions_under_their_older_address():
    """torch.functional lacks a function that torch has."""
    assert all(getattr(flambeau.functional, name) is getattr(flambeau, name) for name in flambeau.functional.__all__)
    assert set(flambeau.functional.__all__) == set(torch.functional.__all__)


def test_downloads_are_whole_or_absent(tmp_path):
    """A download with the wrong checksum must leave nothing behind; the right one appears under its name."""
    source, target = tmp_path / "weights-abc.bin", tmp_path / "kept" / "weights.bin"
    target.parent.mkdir()
    source.write_bytes(b"weights" * 1000)
    with pytest.raises(RuntimeError, match="invalid hash"):
        flambeau.hub.download_url_to_file(source.as_uri(), str(target), hash_prefix="0000", progress=False)
    assert list(target.parent.iterdir()) == []
    flambeau.hub.download_url_to_file(source.as_uri(), str(target), hash_prefix="", progress=False)
    assert target.read_bytes() == source.read_bytes() and list(target.parent.iterdir()) == [target]


def test_weights_from_an_address(tmp_path, monkeypatch, capsys):
    """Weights are downloaded once, checked against the checksum in their name, and kept where PyTorch keeps them."""
    weights = {"w": torch.arange(3.0)}
    torch.save(weights, tmp_path / "plain.pth")
    digest = hashlib.sha256((tmp_path / "plain.pth").read_bytes()).hexdigest()
    source = tmp_path / f"net-{digest[:8]}.pth"
    (tmp_path / "plain.pth").rename(source)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    assert flambeau.hub.get_dir() == torch.hub.get_dir()
    found = flambeau.hub.load_state_dict_from_url(source.as_uri(), progress=False, check_hash=True, weights_only=True)
    assert found["w"].tolist() == [0.0, 1.0, 2.0] and "Downloading" in capsys.readouterr().out
    url = source.as_uri()
    source.unlink()
    assert flambeau.hub.load_state_dict_from_url(url)["w"].tolist() == [0.0, 1.0, 2.0]
    assert [path.name for path in (tmp_path / "home" / "hub" / "checkpoints").iterdir()] == [source.name]


def test_models_of_a_local_repository(tmp_path):
    """torch.hub.load calls what a folder's hubconf.py defines; code from the network is not run."""
    (tmp_path / "hubconf.py").write_text(
        "dependencies = ['numpy']\nimport beside\ndef made(width, deep=1):\n    return beside.answer(width, deep)\n"
    )
    (tmp_path / "beside.py").write_text("def answer(*given):\n    return given\n")
    for t in (flambeau, torch):
        assert t.hub.load(str(tmp_path), "made", 3, source="local", deep=2) == (3, 2)
        with pytest.raises(RuntimeError, match="Cannot find callable other"):
            t.hub.load(str(tmp_path), "other", source="local")
        sys.modules.pop("beside", None)
    (tmp_path / "hubconf.py").write_text("dependencies = ['numpy', 'no_such_package']\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package"):
        flambeau.hub.load(str(tmp_path), "made", source="local")
    with pytest.raises(NotImplementedError, match="git"):
        flambeau.hub.load("owner/repository", "made")
    assert str(tmp_path) not in sys.path


def test_layers_copied_from_pytorchs_find_its_helpers():
    """What copies of attention and of convolutions import from the files of the originals."""
    conv = flambeau.nn.modules.conv
    assert conv._pair(3) == (3, 3) and conv._reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1) and conv._size_2_t
    for f in (flambeau, torch):
        check, q = f.nn.functional._mha_shape_check, f.ones(4, 2, 6)
        assert check(q, q, q, f.ones(2, 4), None, 2) is True and check(q[:, 0], q[:, 0], q[:, 0], None, f.ones(4, 4), 2) is False
        for wrong in (
            (q, q[0], q, None, None),
            (q, q, q, f.ones(2), None),
            (q[0, 0], q, q, None, None),
            (q[0], q[0], q[0], None, f.ones(3, 2, 2)),
        ):
            with pytest.raises(AssertionError):
                check(*wrong, 2)
        assert f.nn.functional.has_torch_function_variadic(q, q) is False


def test_a_file_from_an_address_cannot_run_code(tmp_path, monkeypatch):
    """load_state_dict_from_url ran what a downloaded pickle said, by default."""
    torch.save({"w": Path}, tmp_path / "net.pth")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global"):
        flambeau.hub.load_state_dict_from_url((tmp_path / "net.pth").as_uri(), progress=False)
    assert flambeau.hub.load_state_dict_from_url((tmp_path / "net.pth").as_uri(), weights_only=False)["w"] is Path
