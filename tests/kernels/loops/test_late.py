"""Loops compiled while the program runs, by processes that share a folder, find it damaged, may not trust it, or have no compiler."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from flambeau.kernels.loops import late
from flambeau.kernels.loops.language import Loop, extent, pick, position, total
from flambeau.kernels.native import native

pytestmark = pytest.mark.skipif(native.lib is None or shutil.which("cc") is None, reason="nothing is compiled here")

PROGRAM = """
import sys, warnings
import numpy as np
from flambeau.kernels.native import native
from flambeau.kernels.loops.language import Loop, total
from flambeau.kernels.loops.run import compiled, run

factor = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
loop = Loop("shares", lambda x: x * factor / total(x), "ri", dtypes=("float32",))
x = np.arange(1, 25, dtype="float32").reshape(4, 6)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    found = [run(loop, (x,)) for _ in range(2)]
wanted = x.astype("float64") * factor / x.sum(1, keepdims=True)
assert all(np.allclose(f, wanted, rtol=1e-6) for f in found)
print("numpy" if compiled("rows", loop) is native.not_compiled else "compiled", len([w for w in said if "compiles nothing" in str(w.message)]))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A cache of our own, and a compiler that notes in a file when it compiles; folder() is where libraries are."""
    script = tmp_path / "compiler"
    script.write_text(f'#!/bin/sh\ncase "$*" in *--version*) ;; *) echo . >> {tmp_path}/log; sleep ${{SLOW:-0}} ;; esac\nexec cc "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("FLAMBEAU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", str(script))
    return tmp_path


def compilations(place: Path) -> int:
    log = place / "log"
    return len(log.read_text().split()) if log.exists() else 0


def libraries(place: Path) -> list[Path]:
    return sorted((place / "cache" / "loops").glob("*"))


def start(*arguments: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def said(process: subprocess.Popen) -> str:
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return out.strip()


def test_a_second_process_finds_what_the_first_compiled(place):
    """A loop is compiled by every process anew, or what another source became is taken for it."""
    assert said(start()) == "compiled 0"
    assert said(start()) == "compiled 0"
    assert compilations(place) == 1 and len(libraries(place)) == 1
    assert said(start("5.0")) == "compiled 0"
    assert compilations(place) == 2 and len(libraries(place)) == 2
    assert said(start(FLAMBEAU_CPU="baseline")) == "compiled 0"  # another CPU
    assert compilations(place) == 3


def test_processes_that_compile_at_once(place):
    """Of several writers one spoils the work of another, or leaves half a file behind."""
    running = [start(SLOW="0.5") for _ in range(5)]
    assert [said(p) for p in running] == ["compiled 0"] * 5
    assert compilations(place) == 5
    assert said(start()) == "compiled 0"
    assert compilations(place) == 5
    assert not [f for f in libraries(place) if f.suffix != ".so"]


@pytest.mark.parametrize("damage", ["cut", "altered", "emptied"])
def test_what_is_damaged_is_compiled_again(place, damage):
    """A library that was cut short or altered is loaded."""
    assert said(start()) == "compiled 0"
    (library,) = libraries(place)
    content = bytearray(library.read_bytes())
    if damage == "altered":
        content[len(content) // 2] ^= 1
    library.write_bytes({"cut": content[: len(content) // 2], "altered": content, "emptied": b""}[damage])
    assert said(start()) == "compiled 0"
    assert compilations(place) == 2
    assert said(start()) == "compiled 0"
    assert compilations(place) == 2 and len(libraries(place)) == 1


def test_a_process_that_is_killed_leaves_nothing_that_counts(place):
    """A compilation that was killed half way is taken for a library."""
    process = start(SLOW="30")
    deadline = time.monotonic() + 60
    while not compilations(place) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert said(start()) == "compiled 0"
    assert compilations(place) == 2


@pytest.mark.parametrize("how", ["writable by others", "readable by others", "a link", "of another user", "a file"])
def test_a_folder_that_is_not_the_users_own_is_not_used(place, how):
    """Libraries are loaded from, or written to, a folder that somebody else may have written to."""
    assert said(start()) == "compiled 0"
    folder = place / "cache" / "loops"
    before = {f.name: f.read_bytes() for f in libraries(place)}
    if how.endswith("by others"):
        folder.chmod(0o777 if "writable" in how else 0o755)
    elif how == "a link":
        folder.rename(place / "elsewhere")
        folder.symlink_to(place / "elsewhere")
    elif how == "a file":
        shutil.rmtree(folder)
        folder.write_text("")
    else:
        if os.geteuid():
            pytest.skip("only root may give a folder away")
        os.chown(folder, 65534, 65534)
    assert said(start("7.0")) == "compiled 0"  # for that process alone
    assert said(start("7.0")) == "compiled 0"
    assert compilations(place) == 3
    if how != "a file":
        assert {f.name: f.read_bytes() for f in libraries(place)} == before


def test_a_file_of_another_user_is_not_loaded(place):
    """A library that another user owns, or may write to, is loaded."""
    assert said(start()) == "compiled 0"
    libraries(place)[0].chmod(0o766)
    assert said(start()) == "compiled 0"
    assert compilations(place) == 2
    if os.geteuid() == 0:
        os.chown(libraries(place)[0], 65534, 65534)
        assert said(start()) == "compiled 0"
        assert compilations(place) == 3


@pytest.mark.parametrize("compiler", ["/no/such/compiler", "false", "sh -c exit"])
def test_without_a_compiler_numpy_does_it(place, compiler):
    """A loop fails, or gives another result, for want of a compiler; or that is said more than once."""
    assert said(start(CC=compiler)) == "numpy 1"


def test_nothing_is_compiled_where_that_is_not_wanted(place):
    """FLAMBEAU_COMPILE=0 is not heeded."""
    assert said(start(FLAMBEAU_COMPILE="0")) == "numpy 0"
    assert compilations(place) == 0


def test_without_a_place_for_files(place):
    """A loop needs a folder that can be written to."""
    (place / "cache").write_text("a file")
    assert said(start()) == "compiled 0"


def test_what_is_no_library_of_loops_is_refused(tmp_path):
    """Any shared object is taken for loops."""
    (tmp_path / "other.c").write_text("int fl_loaded_table;")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "other.so", tmp_path / "other.c"], check=True)
    for name in ("other.so", "other.c", "nothing"):
        with pytest.raises(OSError):
            native.lib.load(os.fsencode(tmp_path / name))
    with pytest.raises(ValueError):
        native.lib.Kernel("rows.softmax", "no capsule")


def test_the_launcher_runs_them_like_all_others(place):
    """Strides, threads, or operands of another dtype than the rows' are a matter of when a loop was compiled."""
    loop = Loop("chosen", lambda x, at, w: w * pick(0, at) + 0 * position * extent, "ri r:i64 i", "ri", dtypes=("float32", "float64"))
    kernel = late.kernel("rows", loop)
    assert type(kernel) is native.lib.Kernel
    x, at, w = np.random.default_rng(1).standard_normal((600, 70)), np.arange(600)[:, None] % 71, np.linspace(0, 1, 70)
    wanted = np.where(at < 70, np.take_along_axis(x, at % 70, 1), np.nan) * w
    for dtype in ("float32", "float64"):
        found = kernel(x.astype(dtype), at, w.astype(dtype))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    wide = np.empty((600, 2, 70), "float32")
    assert kernel.into(wide[:, 1], x.astype("float32"), at, w.astype("float32")) is not NotImplemented
    np.testing.assert_allclose(wide[:, 1], wanted, rtol=1e-6)
    assert kernel(x.astype("float16"), at, w) is NotImplemented


def test_loops_of_numpy_alone_need_no_extension():
    """The NumPy evaluation of a loop differs from its definition."""
    from flambeau.kernels.loops.evaluate import evaluate

    loop = Loop("both", lambda x, w: (x * w / total(x), total(x * w) / extent, x), "ri i", "ri r i")
    x, w = np.random.default_rng(2).standard_normal((5, 4, 7)), np.arange(7.0)
    first, second, third = evaluate(loop, (x, w))
    np.testing.assert_allclose(first, x * w / x.sum(-1, keepdims=True))
    np.testing.assert_allclose(second, (x * w).mean(-1, keepdims=True))
    np.testing.assert_allclose(third, x.sum((0, 1)))
