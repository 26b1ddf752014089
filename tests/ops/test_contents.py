"""Operations are imported and made when they are asked for, and nobody can tell."""

from __future__ import annotations

import subprocess
import sys

import pytest

import flambeau
from flambeau import ops
from flambeau.eager import bind
from flambeau.ops import contents


def declared(subject: str) -> set[str]:
    """What a file offers, in the words of the table of contents."""
    found = set()
    for op in ops.everything():
        if home(op) != subject:
            continue
        names = {op.name, *op.aliases} if op.public else set()
        plain = {a for a in op.aliases if "." not in a}
        methods = {op.method, *plain} if op.method else set()
        methods |= {f"{name}_" for name in {op.short, *plain}} if op.inplace else set()
        found |= {f"{name.rpartition('.')[0]}.*" for name in names if "." in name}
        found |= {f"{name}()" for name in names if "." not in name} | {f".{name}" for name in methods}
    both = {name.removeprefix(".") for name in found if name.startswith(".") and f"{name[1:]}()" in found}
    return (found - {f".{name}" for name in both} - {f"{name}()" for name in both}) | both


def home(op) -> str:
    """The file that declares an operation."""
    return (getattr(op, "write", None) or op.forward).__module__.removeprefix("flambeau.ops.")


@pytest.mark.parametrize("subject", contents.ON_DEMAND)
def test_the_table_of_contents_is_true(subject):
    """A name is declared in ops/ that contents.py does not announce (nobody will find it), or announced and not there."""
    assert set(contents.ON_DEMAND[subject].split()) == declared(subject)


def test_every_file_is_in_the_table_of_contents():
    """A file of ops/ declares operations and is never imported."""
    homes = {home(op) for op in ops.everything()}
    assert homes <= set(contents.SUBJECTS)


def run(program: str) -> str:
    """What a program prints in a fresh interpreter."""
    program = f"""
import sys
import flambeau as torch
from flambeau.ops import contents
def loaded(): return [s for s in contents.ON_DEMAND if f"flambeau.ops.{{s}}" in sys.modules]
{program}"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


ASKS = {
    "nothing": "",
    "dir": "assert {'fft', 'cumsum', 'median'} <= set(dir(torch)) and {'cumsum', 'erf_', 'median'} <= set(dir(torch.Tensor))",
    "function": "assert torch.trapezoid(torch.ones(3)).item() == 2",
    "method": "assert torch.ones(3).cumsum(0)[2].item() == 3",
    "in-place method": "assert torch.zeros(3).i0_()[2].item() == 1",
    "in-place function": "assert torch.i0_(torch.zeros(3))[2].item() == 1",
    "a room": "assert torch.fft.fft(torch.ones(1)).item() == 1",
    "derivative": "x = torch.ones(1, requires_grad=True); torch.special.entr(x).backward()",
    "hasattr": "assert hasattr(torch.Tensor, 'lobpcg') is False and hasattr(torch, 'kthvalue')",
    "from": "from flambeau import einsum",
}
LOADS = {
    "nothing": [], "dir": [], "function": ["calculus"], "method": ["cumulative"], "in-place method": ["special", "gamma_series", "bessel"],
    "in-place function": ["special", "gamma_series", "bessel"], "a room": ["padding", "fft"],
    "derivative": ["special", "gamma_series", "bessel", "polynomials", "softmax"], "hasattr": ["extrema", "sorting", "quantiles"], "from": ["einsum"],
}  # fmt: skip


@pytest.mark.parametrize("way", ASKS)
def test_a_file_is_imported_when_its_name_is_asked_for(way):
    """Asking for a name in this way must work, and import no more files of ops/ than it takes."""
    assert run(f"{ASKS[way]}\nprint(loaded())") == str(LOADS[way])


def test_everything_can_be_imported_by_a_star():
    """`from flambeau import *` brings operations too, and names that are made or imported on demand."""
    run("from flambeau import *\nassert arange(3).cumsum(0)[2] == 3 and callable(einsum) and relu_ and hann_window and Tensor")


def test_methods_run_what_functions_run():
    """x.relu and torch.relu are two functions of one operation, whoever is asked first, and stay the same two."""
    same = "print(m is torch.Tensor.relu, m is not torch.relu, m.op.forward is torch.relu.op.forward, torch.relu is torch.relu)"
    assert run(f"m = torch.Tensor.relu; {same}") == run(f"torch.relu; m = torch.Tensor.relu; {same}") == "True True True True"


def test_a_subclass_reaches_the_method_it_overrides():
    """super().relu() finds Tensor's method, though Tensor has not made it yet."""
    program = """
class Mine(torch.Tensor):
    def relu(self): return super().relu() + 1
    def cumsum(self, dim): return super().cumsum(dim) + 1
x = torch.ones(2).as_subclass(Mine)
print(x.relu().tolist(), x.cumsum(0).tolist())"""
    assert run(program) == "[2.0, 2.0] [2.0, 3.0]"


def test_a_users_method_stays():
    """A method that a program puts in the place of one is not replaced when the file that declares it is imported."""
    program = """
torch.Tensor.cumsum = lambda self, dim: "mine"
torch.cumprod(torch.ones(1), 0)
print(torch.ones(1).cumsum(0))"""
    assert run(program) == "mine"


def test_everything_can_be_bound():
    """Every announced function and method can be made."""
    bind.everything()
    assert all(callable(function) for function in bind.functions.values())
    assert len(bind.functions) == len(list(bind.functions)) > 500
    assert not [name for name, member in vars(flambeau.Tensor).items() if isinstance(member, bind.Later)]
