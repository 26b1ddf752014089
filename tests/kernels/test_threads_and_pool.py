"""The worker pool, the memory pool and the matrix product, compiled on their own and driven from here."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flambeau.kernels import generate
from flambeau.kernels.native import limits
from flambeau.kernels.templates import gemm as products
from flambeau.kernels.templates import print_gemm

CSRC = Path(__file__).parents[2] / "src" / "flambeau" / "kernels" / "native" / "csrc"
CPUINFO = Path("/proc/cpuinfo")
FLAGS = CPUINFO.read_text() if CPUINFO.exists() else ""
# What our loops for products are compiled with.
WIDE = ["-mavx512f", "-mavx512vl"] if "avx512f" in FLAGS else ["-mavx2", "-mfma"] if "avx2" in FLAGS else []
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")

# Blocks written in C, because a Python callback would need the GIL.
ENTRY_POINTS = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "system.h"

typedef struct { atomic_int *counts; int64_t inner; int us; atomic_ullong *who; } Job;

static void mark(void *ctx, int64_t b) { atomic_fetch_add((atomic_int *)ctx + b, 1); }
void t_mark(int *counts, int64_t n) { fl_parallel(mark, counts, n); }

static void nest(void *ctx, int64_t b) { Job *j = ctx; fl_parallel(mark, j->counts + b * j->inner, j->inner); }
void t_nested(int *counts, int64_t outer, int64_t inner) {
    Job job = {(atomic_int *)counts, inner, 0, NULL};
    fl_parallel(nest, &job, outer);
}

static void linger(void *ctx, int64_t b) {
    Job *j = ctx;
    struct timespec t = {0, j->us * 1000L};
    nanosleep(&t, NULL);
    if (j->who) atomic_store(&j->who[b], (unsigned long long)(uintptr_t)pthread_self());
    atomic_fetch_add(&j->counts[b], 1);
}
void t_linger(int *counts, int64_t n, int us, unsigned long long *who) {
    Job job = {(atomic_int *)counts, 0, us, (atomic_ullong *)who};
    fl_parallel(linger, &job, n);
}

static int wrong(int *counts, int n) { int w = 0; for (int i = 0; i < n; i++) w += counts[i] != 1; return w; }

int t_repeat(int rounds, int n) {
    int *counts = malloc(sizeof(int) * (size_t)n), bad = 0;
    for (int r = 0; r < rounds; r++) {
        memset(counts, 0, sizeof(int) * (size_t)n);
        t_mark(counts, n);
        bad += wrong(counts, n);
    }
    free(counts);
    return bad;
}

int t_hammer(int rounds, unsigned seed) {
    enum { KEEP = 32 };
    unsigned char *held[KEEP] = {0};
    size_t sizes[KEEP] = {0};
    int bad = 0;
    for (int r = 0; r < rounds; r++) {
        int i = (int)((seed = seed * 1664525u + 1013904223u) >> 16) % KEEP;
        if (held[i]) {
            bad += held[i][0] != (unsigned char)(i + 1) || held[i][sizes[i] - 1] != (unsigned char)(i + 1);
            fl_free(held[i], sizes[i]);
        }
        seed = seed * 1664525u + 1013904223u;
        sizes[i] = 1 + (seed >> 8) % (r % 16 ? 5000 : 3000000);
        held[i] = fl_alloc(sizes[i]);
        if (!held[i]) return -1;
        held[i][0] = held[i][sizes[i] - 1] = (unsigned char)(i + 1);
    }
    for (int i = 0; i < KEEP; i++) fl_free(held[i], sizes[i]);
    return bad;
}

static int wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int t_fork(int seconds) {
    pid_t child = fork();
    if (child) return wait_for(child);
    alarm((unsigned)seconds); /* a deadlock ends as 128 + SIGALRM */
    _exit(t_repeat(50, 100) + t_hammer(200, 1) ? 1 : 0);
}

int t_product(int rounds, int m, int n, int k) {
    float one = 1, zero = 0, *x = malloc(sizeof(float) * (size_t)(m * k + k * n + m * n)), *c = x + m * k + k * n;
    fl_matrix left = {(char *)x, m, k, k, 1, 0, 0}, right = {(char *)(x + m * k), k, n, n, 1, 0, 0}, out = {(char *)c, m, n, n, 1, 0, 0};
    int bad = 0;
    for (int i = 0; i < m * k + k * n; i++) x[i] = 1;
    for (int r = 0; r < rounds; r++) {
        right.transposed = r % 2, right.ld = r % 2 ? k : n;
        fl_gemm(0, left, right, out, &one, &zero, NULL);
        for (int i = 0; i < m * n; i++) bad += c[i] != (float)k;
    }
    free(x);
    return bad;
}

int t_fork_product(int seconds) {
    pid_t child = fork();
    if (child) return wait_for(child);
    alarm((unsigned)seconds);
    _exit(t_product(3, 200, 200, 200) ? 1 : 0);
}

int t_out_of_memory(void) {
    pid_t child = fork();
    if (child) return wait_for(child);
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld", &pages) != 1) _exit(77);
    rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (96u << 20);
    struct rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
    void *p = fl_alloc(64 << 20);
    fl_free(p, 64 << 20);
    if (!p) _exit(1);
    p = fl_alloc(80 << 20); /* does not fit beside the 64 MiB that are cached */
    if (!p) _exit(2);
    if (fl_alloc((size_t)1 << 30)) _exit(3);
    _exit(0);
}
"""


def build(folder: Path) -> Path:
    (folder / "entry.c").write_text(ENTRY_POINTS)
    generate.write_headers(folder)
    library, loops = folder / "libpieces.so", folder / "loops.c"
    loops.write_text("#define FL_NAME(x) x##_test\n" + generate.HEADER + "".join(print_gemm.texts()))
    sources = [str(CSRC / name) for name in ("threads.c", "pool.c", "blas.c")]
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread", f"-I{CSRC}", f"-I{folder}"]
    assert COMPILER is not None
    subprocess.run([COMPILER, *flags, "-std=gnu11", *WIDE, "-c", str(loops), "-o", str(folder / "loops.o")], check=True)
    parts = [*sources, str(folder / "entry.c"), str(folder / "loops.o")]
    subprocess.run([COMPILER, *flags, "-shared", *parts, "-o", str(library), "-lm", "-ldl"], check=True)
    return library


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("csrc"))


@pytest.fixture(scope="module")
def lib(path: Path) -> Iterator[ctypes.CDLL]:
    lib = declare(ctypes.CDLL(str(path)))
    yield lib
    lib.fl_pool_trim()


@pytest.fixture(autouse=True)
def two_threads(lib: ctypes.CDLL) -> Iterator[None]:
    lib.fl_set_num_threads(2)
    yield


def declare(lib: ctypes.CDLL) -> ctypes.CDLL:
    pointer, i64, integer = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    lib.t_mark.argtypes = [pointer, i64]
    lib.t_nested.argtypes = [pointer, i64, i64]
    lib.t_linger.argtypes = [pointer, i64, integer, pointer]
    lib.fl_alloc.argtypes, lib.fl_alloc.restype = [ctypes.c_size_t], pointer
    lib.fl_free.argtypes = [pointer, ctypes.c_size_t]
    lib.fl_pool_stats.argtypes = [pointer] * 3 + [ctypes.c_bool]
    lib.fl_pool_set_memory.argtypes = [ctypes.c_double]
    lib.fl_gemm.argtypes = [integer, Matrix, Matrix, Matrix, pointer, pointer, pointer]
    lib.fl_blas_bind.argtypes = [pointer, pointer]
    return lib


class Matrix(ctypes.Structure):
    """fl_matrix of system.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "cols", "ld", "batch", "stride")),
        ("transposed", ctypes.c_bool),
    )


# Threads


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_block_runs_exactly_once(lib: ctypes.CDLL, threads: int) -> None:
    """Whatever the number of blocks and threads, each block runs once and is done when fl_parallel returns."""
    lib.fl_set_num_threads(threads)
    for n in [0, 1, 2, 3, 7, 8, 9, 64, 1000, 100_000]:
        counts = np.zeros(max(n, 1), np.int32)
        lib.t_mark(counts.ctypes.data, n)
        assert (counts[:n] == 1).all()
    assert lib.t_repeat(3000, 5) == 0


def test_blocks_are_done_on_several_threads_but_no_more_than_asked(lib: ctypes.CDLL) -> None:
    """Blocks that take a while are shared, also after the number of threads has grown and shrunk."""
    for threads in [2, 4, 8, 3, 1]:
        lib.fl_set_num_threads(threads)
        assert lib.fl_get_num_threads() == threads
        counts, who = np.zeros(32, np.int32), np.zeros(32, np.uint64)
        lib.t_linger(counts.ctypes.data, 32, 2000, who.ctypes.data)
        assert (counts == 1).all()
        used = len(np.unique(who))
        assert used <= threads and (used > 1 or threads == 1)


def test_the_number_of_threads_is_at_least_one(lib: ctypes.CDLL) -> None:
    """Nonsense is taken as one thread."""
    for n in [0, -5]:
        lib.fl_set_num_threads(n)
        assert lib.fl_get_num_threads() == 1


def test_nested_work_runs_inside_its_block(lib: ctypes.CDLL) -> None:
    """fl_parallel called from a block neither deadlocks nor loses blocks."""
    for threads in [1, 2, 8]:
        lib.fl_set_num_threads(threads)
        counts = np.zeros(50 * 20, np.int32)
        lib.t_nested(counts.ctypes.data, 50, 20)
        assert (counts == 1).all()


def test_concurrent_callers_do_not_disturb_each_other(lib: ctypes.CDLL) -> None:
    """Four Python threads that all call fl_parallel each get every one of their blocks done."""
    wrong: list[int] = []
    callers = [threading.Thread(target=lambda: wrong.append(lib.t_repeat(1000, 50))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert wrong == [0, 0, 0, 0]


def test_a_fork_in_the_middle_of_parallel_work_starts_a_new_pool(lib: ctypes.CDLL) -> None:
    """A child forked while workers are busy runs parallel work and allocates without deadlock; so does its parent."""
    stop, wrong = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            wrong.append(lib.t_repeat(100, 20) + lib.t_hammer(200, 7))

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        assert [lib.t_fork(20) for _ in range(20)] == [0] * 20
    finally:
        stop.set()
        for worker in workers:
            worker.join(60)
    assert not any(wrong) and lib.t_repeat(10, 100) == 0


def test_default_thread_count_follows_affinity_and_environment() -> None:
    """FLAMBEAU_NUM_THREADS beats OMP_NUM_THREADS beats the CPUs this process may use."""
    program = (
        "import os, runpy, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "found = runpy.run_path(sys.argv[1]); print(found['cpus'](), found['threads']())"
    )
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("no affinity on this system")
    clean = {k: v for k, v in os.environ.items() if k not in ("FLAMBEAU_NUM_THREADS", "OMP_NUM_THREADS")}
    for extra, expected in [
        ({}, "1 1"),
        ({"OMP_NUM_THREADS": "5"}, "1 5"),
        ({"FLAMBEAU_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, "1 3"),
        ({"FLAMBEAU_NUM_THREADS": "many", "OMP_NUM_THREADS": "4,2"}, "1 4"),
    ]:
        out = subprocess.run(
            [sys.executable, "-S", "-c", program, limits.__file__], env=clean | extra, capture_output=True, text=True, check=True
        )
        assert out.stdout.strip() == expected


# Memory


def test_limits_of_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quota of a control group counts, in its old and its new form, and so does that of its parents."""
    allowed = limits.cpus()
    own, above = tmp_path / "own", tmp_path / "above"
    for folder in (own, above):
        folder.mkdir()
    monkeypatch.setattr(limits, "_directories", lambda controller: map(str, (own, above)))
    assert limits.cpus() == allowed
    (own / "cpu.max").write_text("max 100000\n")
    (own / "memory.max").write_text("max\n")
    assert limits.cpus() == allowed
    (above / "cpu.max").write_text("50000 100000\n")
    (above / "memory.max").write_text("1048576\n")
    assert limits.cpus() == 1 and limits.memory() == 1048576
    (above / "cpu.max").unlink()
    (above / "cpu.cfs_quota_us").write_text("-1\n")
    (above / "cpu.cfs_period_us").write_text("100000\n")
    assert limits.cpus() == allowed
    (above / "cpu.cfs_quota_us").write_text("20000\n")
    assert limits.cpus() == 1


def stats(lib: ctypes.CDLL, reset_peak: bool = False) -> tuple[int, int, int]:
    values = (ctypes.c_int64 * 3)()
    lib.fl_pool_stats(*(ctypes.addressof(values) + 8 * i for i in range(3)), reset_peak)
    return values[0], values[1], values[2]


def test_memory_is_aligned_writable_and_does_not_overlap(lib: ctypes.CDLL) -> None:
    """Blocks of any size begin on a multiple of 64 and are disjoint."""
    sizes = [0, 1, 63, 64, 65, 100, 4096, 4097, 81_920, 1 << 20, (1 << 20) + 1, 5 << 20]
    sizes += [2**p + d for p in range(6, 22) for d in (-1, 0, 1)]
    blocks = [(lib.fl_alloc(n), n) for n in sizes]
    for address, n in blocks:
        assert address % 64 == 0
        ctypes.memset(address, 1, n)
    ordered = sorted(blocks)
    assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(ordered))
    for address, n in blocks:
        lib.fl_free(address, n)


def test_freed_memory_is_reused(lib: ctypes.CDLL) -> None:
    """A block that was just freed is what the next request of its class gets, small or big."""
    for n, similar in [(100, 128), (5000, 5100), (3 << 20, (3 << 20) - 4000), (40 << 20, 40 << 20)]:
        first = lib.fl_alloc(n)
        lib.fl_free(first, n)
        second = lib.fl_alloc(similar)
        assert second == first
        lib.fl_free(second, similar)


def test_stats_count_live_cached_and_peak(lib: ctypes.CDLL) -> None:
    """Allocating moves bytes to live, freeing to cached, trimming to the system; the peak stays until it is reset."""
    lib.fl_pool_trim()
    live, cached, _ = stats(lib)
    assert cached == 0
    stats(lib, reset_peak=True)
    block = lib.fl_alloc(1 << 20)
    assert stats(lib) == (live + (1 << 20), 0, live + (1 << 20))
    lib.fl_free(block, 1 << 20)
    assert stats(lib) == (live, 1 << 20, live + (1 << 20))
    stats(lib, reset_peak=True)
    lib.fl_pool_trim()
    assert stats(lib) == (live, 0, live)


def test_the_cache_keeps_to_its_cap_and_drops_the_oldest(lib: ctypes.CDLL) -> None:
    """A quarter of the memory may be cached. With too much, blocks of sizes freed long ago go back to the system first."""
    lib.fl_pool_trim()
    lib.fl_pool_set_memory(32 << 20)
    try:
        blocks = [(lib.fl_alloc(n << 20), n << 20) for n in (2, 3, 4)]
        for address, n in blocks:
            lib.fl_free(address, n)
        assert stats(lib)[1] == 7 << 20  # 2 MiB, the oldest, is gone
        assert lib.fl_alloc(4 << 20) == blocks[2][0]
        lib.fl_free(blocks[2][0], 4 << 20)
        lib.fl_pool_set_memory(0)
        assert stats(lib)[1] == 0
    finally:
        lib.fl_pool_set_memory(4 << 30)


def test_without_memory_the_cache_is_given_up_first_and_then_null_returned(lib: ctypes.CDLL) -> None:
    """A request that fits only after trimming succeeds; one that can never fit gives NULL, not a crash."""
    assert lib.fl_alloc(2**63) is None
    if sys.platform == "linux":
        assert lib.t_out_of_memory() == 0


def test_two_threads_can_hammer_the_pool(lib: ctypes.CDLL) -> None:
    """No block is handed out twice, and nothing is lost, when threads allocate and free at the same time."""
    before, results = stats(lib)[0], []
    threads = [threading.Thread(target=lambda s=s: results.append(lib.t_hammer(20_000, s))) for s in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [0, 0] and stats(lib)[0] == before


# Matrix products

TRANSPOSED = list(itertools.product((0, 1), (0, 1)))
TYPES = [np.float32, np.float64, np.complex64, np.complex128]


def openblas() -> str:
    package = pytest.importorskip("scipy_openblas32")
    return str(next(Path(package.get_lib_dir()).glob("libscipy_openblas.*")))


@pytest.fixture(scope="module", params=["our loops", "this CPU", "Haswell", "no library"])
def blas(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, path: Path) -> Iterator[ctypes.CDLL]:
    """The library bound to OpenBLAS; with our loops for real products, as it is, and as it is without AVX-512; and bound to our loops alone."""
    alone = request.param == "no library"
    if alone and not WIDE:
        pytest.skip("needs a CPU with AVX2")
    folder, library = tmp_path_factory.mktemp("blas"), "" if alone else openblas()
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "Haswell":
            if "avx2" not in FLAGS:
                pytest.skip("needs a CPU with AVX2")
            patch.setenv("OPENBLAS_CORETYPE", "Haswell")
            library = shutil.copy(library, folder)  # a file of its own is loaded, and looks at the CPU, anew
        lib = declare(ctypes.CDLL(shutil.copy(path, folder)))
        bind(lib, str(library), request.param in ("our loops", "no library"))
    lib.alone = alone
    lib.fl_set_num_threads(2)
    yield lib


def bind(lib: ctypes.CDLL, library: str, ours: bool) -> None:
    loops = ctypes.addressof(ctypes.c_void_p.in_dll(lib, "fl_products_test")) if WIDE and ours else None
    lib.fl_blas_bind((ctypes.c_void_p * 6)(*(products.functions(library) if library else products.NO_FUNCTIONS)), loops)


def aligned(x: np.ndarray) -> np.ndarray:
    """A copy that begins on a multiple of 64, as the pool's memory does."""
    raw = np.empty(x.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


rng = np.random.default_rng(0)


def random(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    x = rng.standard_normal(shape)
    return aligned((x + 1j * rng.standard_normal(shape) if np.issubdtype(dtype, np.complexfloating) else x).astype(dtype))


def gemm(lib, transa, transb, a, b, c, alpha=1.0, beta=0.0, strides=None, row=None):
    """c = alpha op(a) op(b) + beta c on arrays (batch, rows, cols) whose rows are contiguous."""
    scalars = np.array([alpha, beta], c.dtype)
    steps = strides or [x.strides[0] // x.itemsize for x in (a, b, c)]
    matrices = []
    for x, transposed, step in zip((a, b, c), (transa, transb, 0), steps, strict=True):
        rows, cols = x.shape[:0:-1] if transposed else x.shape[1:]
        matrices.append(Matrix(x.ctypes.data, rows, cols, x.strides[1] // x.itemsize, c.shape[0], step, bool(transposed)))
    answer = lib.fl_gemm(TYPES.index(c.dtype.type), *matrices, scalars.ctypes.data, scalars[1:].ctypes.data, row)
    for_library = c.dtype.kind == "c" or (1 in c.shape[1:] and a[0].size * b[0].size > 1 << 16)
    if answer == 0 or not (getattr(lib, "alone", False) and for_library):
        return answer
    # Nobody is there for complex numbers, or for a vector times a large matrix: our callers turn to NumPy.
    left, right = (x.mT if transposed else x for x, transposed in ((a, transa), (b, transb)))
    first = [np.broadcast_to(x[:1], x.shape) if step == 0 else x for x, step in zip((left, right), steps, strict=False)]
    c[...] = alpha * np.matmul(*first) + (beta * c if beta else 0)
    return 0


def operands(m: int, k: int, n: int, transa: int, transb: int, dtype: type, batch: int = 1):
    a = random((batch, k, m) if transa else (batch, m, k), dtype)
    b = random((batch, n, k) if transb else (batch, k, n), dtype)
    wide = np.complex128 if np.issubdtype(dtype, np.complexfloating) else np.float64
    expected = (a.mT if transa else a).astype(wide) @ (b.mT if transb else b).astype(wide)
    return a, b, expected


def close(c: np.ndarray, expected: np.ndarray, k: int) -> bool:
    return bool(np.allclose(c, expected, rtol=0, atol=8 * np.finfo(c.dtype).eps * (k + 1)))


# m, k, n: single elements, rows, columns, thin, odd, in panels, flipped, turned, and too big for panels; 2 to 16 rows of dot products,
# whose K is whole vectors and not; rows of B that compete; pieces that pack several panels in chunks of K; tall and transposed; more dot products
SHAPES = [
    (1, 1, 1), (1, 7, 5), (7, 5, 1), (1, 700, 300), (300, 700, 1), (3, 2, 200), (17, 61, 65), (16, 784, 256), (64, 784, 256),
    (65, 130, 63), (128, 128, 128), (250, 257, 129), (256, 64, 784), (1000, 33, 70), (70, 33, 1000), (120, 1100, 1000),
    *((rows, depth, 37) for rows in (2, 3, 5, 6, 7, 11, 16) for depth in (5, 48, 75)), (24, 128, 512), (200, 1100, 400), (200, 540, 413),
    (64, 64, 32), (129, 65, 40), (26, 128, 100), (33, 70, 60), (39, 64, 50),
]  # fmt: skip


@pytest.mark.skipif("avx2" not in FLAGS, reason="needs a CPU with AVX2")
def test_kernels_asked_for_by_name_are_safe() -> None:
    """OPENBLAS_CORETYPE may name kernels that are not those for this CPU: products and factorisations are right with them, and end."""
    program = """
import numpy as np
from flambeau.kernels.templates import gemm
from flambeau.kernels.linear_algebra import lapack, matrices
rng = np.random.default_rng(0)
for dtype in (np.float64, np.complex128):
    for m, k, n in ((300, 700, 1), (300, 700, 3), (400, 900, 400)):
        a, b = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))
        assert np.allclose(gemm.product(a, b), a @ b)
if lapack.library() is not None:
    a = rng.standard_normal((700, 700)) + 700 * np.eye(700) + 1j
    assert np.allclose(a @ matrices.inverse(a), np.eye(700))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"OPENBLAS_CORETYPE": "Haswell"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("transa,transb", TRANSPOSED)
def test_gemm_is_numpys_product(blas: ctypes.CDLL, dtype: type, transa: int, transb: int) -> None:
    """alpha op(A) op(B) + beta C agrees with NumPy in double precision for every transposition and awkward size."""
    shapes = [s for s in SHAPES if math.prod(s) < 5e6] if np.issubdtype(dtype, np.complexfloating) else SHAPES
    for m, k, n in shapes:
        a, b, expected = operands(m, k, n, transa, transb, dtype)
        c = np.full((1, m, n), np.nan, dtype)
        assert gemm(blas, transa, transb, a, b, c) == 0
        assert close(c, expected, k), (m, k, n)
        c = random((1, m, n), dtype)
        start = c.copy()
        assert gemm(blas, transa, transb, a, b, c, alpha=0.5, beta=1.0) == 0
        assert close(c, 0.5 * expected + start, k), (m, k, n)


@pytest.mark.parametrize("dtype", TYPES)
def test_beta_zero_forgets_and_k_zero_scales(blas: ctypes.CDLL, dtype: type) -> None:
    """With beta = 0 the old C may be NaN; an empty sum is beta C; an empty C is left alone."""
    for m, n in [(1, 1), (1, 40), (40, 1), (70, 130)]:
        a, b = np.empty((1, m, 1), dtype)[:, :, :0], np.empty((1, 1, n), dtype)[:, :0]
        c = np.full((1, m, n), np.nan, dtype)
        assert gemm(blas, 0, 0, a, b, c) == 0
        assert (c == 0).all()
        c[...] = 3
        assert gemm(blas, 0, 0, a, b, c, beta=2.0) == 0
        assert (c == 6).all()
    a, b, _ = operands(0, 5, 4, 0, 0, dtype)
    assert gemm(blas, 0, 0, a, b, np.empty((1, 0, 4), dtype)) == 0


@pytest.mark.parametrize("batch,m,k,n", [(48, 64, 32, 64), (5, 33, 100, 70), (2, 300, 300, 300), (40, 1, 64, 64), (7, 3, 4, 5)])
def test_batches(blas: ctypes.CDLL, batch: int, m: int, k: int, n: int) -> None:
    """Each product of a batch is its own; a stride of 0 uses one operand for all."""
    for transa, transb in TRANSPOSED:
        a, b, expected = operands(m, k, n, transa, transb, np.float32, batch)
        c = np.full((batch, m, n), np.nan, np.float32)
        assert gemm(blas, transa, transb, a, b, c) == 0
        assert close(c, expected, k)
        for shared_a, shared_b in [(1, 0), (0, 1), (1, 1)]:
            strides = [0 if shared_a else m * k, 0 if shared_b else k * n, m * n]
            assert gemm(blas, transa, transb, a, b, c, strides=strides) == 0
            left, right = (a.mT if transa else a).astype(np.float64), b.mT if transb else b
            assert close(c, (left[:1] if shared_a else left) @ (right[:1] if shared_b else right), k)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_takes_the_place_of_c(blas: ctypes.CDLL, dtype: type) -> None:
    """C = alpha A B + beta row, also where C is turned on the way."""
    for (m, k, n), (transa, transb) in itertools.product([(64, 784, 256), (7, 5, 33), (256, 64, 70), (33, 600, 40)], TRANSPOSED):
        a, b, expected = operands(m, k, n, transa, transb, dtype)
        row, c = random((n,), dtype), np.full((1, m, n), np.nan, dtype)
        assert gemm(blas, transa, transb, a, b, c, alpha=0.5, beta=2.0, row=row.ctypes.data) == 0
        assert close(c, 0.5 * expected + 2 * row, k), (m, k, n)


def test_leading_dimensions_leave_the_rest_alone(blas: ctypes.CDLL) -> None:
    """Operands and result may be windows of bigger matrices; what surrounds the result stays as it was."""
    for transa, transb in TRANSPOSED:
        m, k, n = 100, 150, 90
        big_a, big_b, big_c = (random((1, 200, 211), np.float32) for _ in range(3))
        before = big_c.copy()
        a = big_a[:, 3 : 3 + (k if transa else m), 5 : 5 + (m if transa else k)]
        b = big_b[:, 1 : 1 + (n if transb else k), 2 : 2 + (k if transb else n)]
        c = big_c[:, 7 : 7 + m, 11 : 11 + n]
        assert gemm(blas, transa, transb, a, b, c) == 0
        assert close(c, (a.mT if transa else a).astype(np.float64) @ (b.mT if transb else b), k)
        before[:, 7 : 7 + m, 11 : 11 + n] = c
        assert (big_c == before).all()


def test_what_blas_cannot_do_is_refused(lib: ctypes.CDLL, blas: ctypes.CDLL) -> None:
    """Without a library, with overlapping rows or with 33-bit sizes the answer is -1, and C is untouched."""
    a, b, _ = operands(4, 4, 4, 0, 0, np.float32)
    c = np.ones((1, 4, 4), np.float32)
    assert gemm(lib, 0, 0, a, b, c) == -1
    assert gemm(blas, 0, 0, np.broadcast_to(a[:, :1], a.shape), b, c) == -1
    one = np.ones(2, np.float32)
    address = one.ctypes.data
    high, single = Matrix(address, 2**31, 1, 1, 1, 0, False), Matrix(address, 1, 1, 1, 1, 0, False)
    assert blas.fl_gemm(0, high, single, high, address, address, None) == -1
    assert (c == 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_bits_with_any_number_of_threads(blas: ctypes.CDLL, dtype: type) -> None:
    """One, two, three or eight threads: not a bit of the result differs."""
    for transa, transb in TRANSPOSED:
        for m, k, n, batch in [(64, 784, 256, 1), (256, 64, 784, 1), (120, 1100, 1000, 1), (1, 900, 1200, 1), (33, 70, 90, 12)]:
            a, b, _ = operands(m, k, n, transa, transb, dtype, batch)
            results = []
            for threads in (1, 2, 3, 8):
                blas.fl_set_num_threads(threads)
                c = np.empty((batch, m, n), dtype)
                assert gemm(blas, transa, transb, a, b, c) == 0
                results.append(c.tobytes())
            assert results.count(results[0]) == 4, (m, k, n, batch)
    blas.fl_set_num_threads(2)


def test_a_fork_in_the_middle_of_a_product(blas: ctypes.CDLL) -> None:
    """A child forked while its parent multiplies can multiply, too."""
    stop, wrong = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            wrong.append(blas.t_product(200, 20, 20, 20))  # short, so that many begin and end

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert [blas.t_fork_product(20) for _ in range(60)] == [0] * 60
    finally:
        stop.set()
        worker.join(60)
    assert not any(wrong)


def test_what_is_kept_goes_when_something_larger_is_taken():
    """Free blocks of other sizes stay beside a new large one: the process holds much more than was ever in use."""
    program = """
import flambeau
from flambeau.kernels.native.native import lib

parts = [flambeau.empty(2**24) for _ in range(12)]  # 64 MiB each, never written to
del parts
assert lib.pool_stats()["cached"] == 12 << 26
whole = flambeau.empty(2**28)
found = lib.pool_stats()
assert found["live"] >= 2**30 and found["cached"] <= 2**28, found"""
    subprocess.run([sys.executable, "-c", program], check=True)
