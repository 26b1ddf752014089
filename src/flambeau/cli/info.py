"""Show what Flambeau runs on: versions, CPU, threads, memory, GPUs, compiler.

`facts()` collects it in a dictionary of sections, which `--json` prints as it is and `as_text` as a table.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from typing import Any

import numpy as np

from flambeau import __config__, cuda, settings
from flambeau.kernels.native import limits, native
from flambeau.version import flambeau_version, torch_version

USAGE = """\
usage: flambeau info [--json]

Shows versions, CPU, threads, memory and their limits, BLAS, CUDA devices, the compiler found.

  --json   as JSON, for programs and bug reports"""

# Of a CPU's many features, those that kernels are compiled for, or that matter to arithmetic.
FEATURES = (
    "sse4_2 avx f16c fma avx2 bmi2 avx512f avx512vl avx512bw avx512dq avx512_vnni avx512_bf16 avx512_fp16 amx_bf16 amx_int8 "
    "asimd asimdhp asimddp fphp bf16 i8mm sve sve2"
).split()  # fmt: skip


def main(argv: list[str]) -> int:
    if argv and argv[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    if argv and argv != ["--json"]:
        print(f"flambeau info: unknown argument {argv[0]!r}\n\n{USAGE}", file=sys.stderr)
        return 2
    found = facts()
    print(json.dumps(found, indent=2) if argv else as_text(found))
    return 0


def facts() -> dict[str, dict[str, Any]]:
    """Everything there is to say, by section. What does not apply is None."""
    return {
        "flambeau": {"version": flambeau_version, "pytorch_api": torch_version, "folder": os.path.dirname(os.path.dirname(__file__))},
        "python": {
            "version": platform.python_version(),
            "executable": sys.executable,
            "numpy": np.__version__,
            "ml_dtypes": version_of("ml_dtypes"),
        },
        "kernels": {
            "compiled": native.lib is not None,
            "count": len(native.kernels()),
            "variant": native.lib.variant() if native.lib is not None else None,
            "reason": native.reason or None,
            "blas": __config__._blas(),
            "compiler": compiler(),
        },
        "system": {"name": system(), "machine": platform.machine(), "libc": " ".join(platform.libc_ver()).strip() or None},
        "cpu": {
            "name": cpu_name(),
            "features": [name for name in FEATURES if name in _cpuinfo("flags", "Features").split()],
            "cores": os.cpu_count(),
            "affinity": limits.affinity(),
            "container_quota": _finite(limits.cpu_quota()),
            "threads": settings.get_num_threads(),
            "threads_from": next((n for n in ("FLAMBEAU_NUM_THREADS", "OMP_NUM_THREADS") if os.environ.get(n)), None),
        },
        "memory": {
            "installed": limits.installed_memory(),
            "available": available_memory(),
            "container_limit": _finite(limits.memory_limit()),
        },
        "cuda": cuda_facts(),
    }


# -- looking -----------------------------------------------------------------------------------------------------------------------------


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def system() -> str:
    """As "Linux 6.1.0, Debian GNU/Linux 12"."""
    name = f"{platform.system()} {platform.release()}"
    try:
        return f"{name}, {platform.freedesktop_os_release()['PRETTY_NAME']}"
    except (OSError, KeyError, AttributeError):
        return name


def _cpuinfo(*keys: str) -> str:
    """The value of the first line of /proc/cpuinfo with one of these keys; "" without one."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() in keys:
                    return value.strip()
    except OSError:
        pass
    return ""


def cpu_name() -> str:
    if sys.platform == "darwin":
        return _first_line(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.processor()
    return _cpuinfo("model name", "Model") or platform.processor() or platform.machine()


def available_memory() -> int | None:
    """Bytes that programs can still get without swapping."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            (kilobytes,) = [line.split()[1] for line in file if line.startswith("MemAvailable:")]
            return int(kilobytes) * 1024
    except (OSError, ValueError):
        return None


def compiler() -> dict[str, str] | None:
    """The C compiler that would be used, and what it says it is."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        path = shutil.which(name.split(" ")[0]) if name else None
        if path is not None:
            return {"path": path, "version": _first_line([path, "--version"]) or "unknown"}
    return None


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0].strip()


def cuda_facts() -> dict[str, Any]:
    """CuPy's version and the GPUs it finds; otherwise what to do."""
    found: dict[str, Any] = {"available": False, "cupy": None, "runtime": None, "driver": None, "devices": [], "advice": None}
    if not cuda.choosing.installed():
        return found | {"advice": "CuPy is not installed: pip install 'flambeau[cuda]' on a machine with an NVIDIA GPU"}
    import cupy

    found["cupy"] = cupy.__version__
    if not cuda.is_available():
        return found | {"advice": "CuPy is installed, but finds no GPU (see nvidia-smi)"}
    for index in range(cuda.device_count()):
        gpu = cuda.get_device_properties(index)
        found["devices"].append({"name": gpu.name, "capability": f"{gpu.major}.{gpu.minor}", "memory": gpu.total_memory})
    runtime = cupy.cuda.runtime
    return found | {
        "available": True,
        "runtime": cuda.choosing.runtime_version(),
        "driver": _cuda_version(runtime.driverGetVersion()),
    }


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# -- telling -----------------------------------------------------------------------------------------------------------------------------


def as_text(found: dict[str, dict[str, Any]]) -> str:
    """The facts as an aligned table, one line each."""
    own, python, kernels, cpu, memory = (found[name] for name in ("flambeau", "python", "kernels", "cpu", "memory"))
    if kernels["compiled"]:
        compiled = f"{kernels['count']} compiled, the {kernels['variant']} variant is in use"
    else:
        compiled = f"not compiled, everything runs on NumPy ({kernels['reason']})"
    cores = [f"{cpu['cores']} in the machine"]
    if cpu["affinity"] != cpu["cores"]:
        cores.append(f"{cpu['affinity']} for this process")
    if cpu["container_quota"] is not None:
        cores.append(f"the container may use {cpu['container_quota']:g}")
    sizes = [f"{size(memory['installed'])} installed"]
    if memory["available"] is not None:
        sizes.append(f"{size(memory['available'])} available")
    if memory["container_limit"] is not None:
        sizes.append(f"the container may use {size(memory['container_limit'])}")
    cc = kernels["compiler"]
    rows = [
        ("Flambeau", f"{own['version']}, with the API of PyTorch {own['pytorch_api']}"),
        ("", own["folder"]),
        ("Python", f"{python['version']}  {python['executable']}"),
        ("NumPy", f"{python['numpy']}, ml_dtypes {python['ml_dtypes']}"),
        ("BLAS", kernels["blas"]),
        ("kernels", compiled),
        ("compiler", f"{cc['path']}: {cc['version']}" if cc else "none found: install gcc or clang to build kernels"),
        ("system", ", ".join(filter(None, (found["system"]["name"], found["system"]["machine"], found["system"]["libc"])))),
        ("CPU", cpu["name"]),
        ("", " ".join(cpu["features"])),
        ("cores", ", ".join(cores)),
        ("threads", f"{cpu['threads']}" + (f" ({cpu['threads_from']} says so)" if cpu["threads_from"] else "")),
        ("memory", ", ".join(sizes)),
        *_cuda_rows(found["cuda"]),
    ]
    return "\n".join(f"{name:10}{value}" for name, value in rows if value)


def _cuda_rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    if not found["available"]:
        return [("CUDA", f"none. {found['advice']}")]
    head = f"runtime {found['runtime']}, driver {found['driver']}, CuPy {found['cupy']}"
    gpus = [f"{i}: {d['name']}, {size(d['memory'])}, capability {d['capability']}" for i, d in enumerate(found["devices"])]
    return [("CUDA", head), *(("", gpu) for gpu in gpus)]


def size(bytes_: float) -> str:
    """As "7.8 GiB"."""
    for unit in ("B", "KiB", "MiB"):
        if bytes_ < 1024:
            return f"{bytes_:.3g} {unit}"
        bytes_ /= 1024
    return f"{bytes_:.1f} GiB"
