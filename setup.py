"""Builds the kernels: prints their C, compiles it once per CPU variant, links one extension. Writes the stubs for editors.

Everything else about the project is in pyproject.toml. Without a C compiler the installation goes through all the same, and Flambeau
runs on NumPy.
"""

import concurrent.futures
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
CSRC = Path("src/flambeau/kernels/native/csrc")
# Python's calling conventions and formulas have parameters that are not read, tables leave out what is 0, and one formula serves signed and unsigned integers.
WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-type-limits"]
STRIP = [] if sys.platform == "darwin" else ["-Wl,-s"]
if SANITIZE := os.environ.get("FLAMBEAU_SANITIZE"):  # e.g. address: tools/sanitized builds such kernels and runs tests on them
    WARNINGS += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer", "-O2", "-g1"]
    STRIP = [f"-fsanitize={SANITIZE}"]
# Passes of gcc that took a tenth of the time and changed nothing that benchmarks can see: loops are printed as they are meant.
SPARED = ["-fno-gcse", "-fno-gcse-after-reload", "-fno-ipa-cp-clone", "-fno-tree-pre"]
# Where x86's baseline runs, on CPUs of before 2013, vectors of known length are what counts: the rest of -O2 took a third of the time.
QUICK = ["-O1", "-ftree-vectorize", "-fvect-cost-model=very-cheap"]


def variants(is_gcc):
    """The CPU variants of the generated sources, each with its flags. Elsewhere than on x86 there is one, which has to be good."""
    from flambeau.kernels.loops.compiler import VARIANTS

    spared, found = SPARED if is_gcc else [], {}
    for variant, flags in VARIANTS.items():
        found[variant] = [*spared, *flags] if flags else QUICK if is_gcc and len(VARIANTS) > 1 else ["-O2"]
    return found


def import_sources():
    """Make `import flambeau` import these sources, without the kernels of an older build: neither C nor stubs need them to be printed."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]
    sys.modules["flambeau.kernels._native"] = None
    warnings.filterwarnings("ignore", message="Flambeau runs without")


class BuildSources(build_py):
    """Adds the stubs, which show editors the functions and methods that are made at run time."""

    def run(self):
        import_sources()
        import surface

        surface.write(surface.PACKAGE / "_surface")
        super().run()


class BuildKernels(build_ext):
    """Compiles the hand-written sources once and the generated ones once per variant."""

    def build_extension(self, ext):
        try:
            self.build_all(ext)
        except Exception as problem:
            warnings.warn(f"Flambeau's kernels were not compiled ({problem}). It will run on NumPy, slower.", stacklevel=1)

    def build_all(self, ext):
        import_sources()
        from flambeau.kernels import generate

        temp = Path(self.build_temp)
        generated = generate.write_all(temp / "generated")
        include = [*ext.include_dirs, str(temp / "generated")]
        shared = [CSRC / "loops.h", CSRC / "system.h", *(temp / "generated").glob("*.h")]
        work = [(source, f"hand_{Path(source).stem}", [], [], [*shared, *CSRC.glob("*.h")]) for source in ext.sources]
        for variant, flags in variants(self.is_gcc()).items():
            defines = [("FL_NAME(x)", f"x##_{variant}"), ("FL_VARIANT", f'"{variant}"')]
            rest = variant != "avx512"
            defines += [("FL_WITH_REST", None)] if rest else []
            work += [(str(s), f"{s.stem}_{variant}", defines, flags, shared) for s in generated if rest or not s.stem.startswith("rest")]
        work.sort(key=lambda job: os.path.getsize(job[0]), reverse=True)  # what takes longest begins first: no core waits for it in the end
        with concurrent.futures.ThreadPoolExecutor(cores()) as pool:
            objects = sorted(pool.map(lambda job: self.compile_one(temp / "objects", include, *job), work))
        self.compiler.link_shared_object(
            objects, self.get_ext_fullpath(ext.name), libraries=ext.libraries, extra_postargs=["-pthread", *STRIP], target_lang="c"
        )

    def is_gcc(self):
        """Whether the compiler is gcc; clang says it is, too."""
        asked = subprocess.run([*self.compiler.compiler_so[:1], "-dM", "-E", "-xc", os.devnull], capture_output=True, text=True)
        return "__GNUC__" in asked.stdout and "__clang__" not in asked.stdout

    def compile_one(self, folder, include, source, name, defines, flags, headers):
        """The object file of one source, compiled unless it is there and newer than what it is made of."""
        (expected,) = self.compiler.object_filenames([source], output_dir=str(folder / name))
        made = Path(expected)
        if not made.exists() or made.stat().st_mtime < max(Path(p).stat().st_mtime for p in (source, *headers)):
            from flambeau.kernels.loops.compiler import FLAGS, VARIANTS

            have = [f"-DFL_HAVE_{variant.upper()}" for variant in VARIANTS if variant != "baseline"]
            self.compiler.compile(
                [source],
                str(folder / name),
                macros=defines,
                include_dirs=include,
                extra_postargs=[*FLAGS, *WARNINGS, *flags, *have, "-pthread"],
            )
        return expected


def cores():
    """How many compilers work side by side: one for each core this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sources():
    return sorted(str(p) for p in CSRC.glob("*.c"))


setup(
    ext_modules=[
        Extension(
            "flambeau.kernels._native",
            sources(),
            include_dirs=[numpy.get_include(), str(CSRC)],
            libraries=[] if sys.platform == "darwin" else ["m", "dl"],
        )
    ],
    cmdclass={"build_ext": BuildKernels, "build_py": BuildSources},
)
