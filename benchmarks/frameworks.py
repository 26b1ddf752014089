"""Frameworks by the name they have on the command line, and the thread settings they are measured with.

A name that is not in the table below is taken for a module with PyTorch's API, which is how a fork, an older
checkout on PYTHONPATH or a test's double gets a column of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.machine import usable_cores


@dataclass(frozen=True)
class Framework:
    """One column of the table.

    label           its heading
    package         what a user imports and pip installs
    module          what cases are given as `torch`
    tunes_threads   measured with one thread and with all cores, and the better of the two counts for each case
    """

    label: str
    package: str
    module: str
    tunes_threads: bool = False

    def thread_settings(self, device: str) -> Sequence[int | None]:
        """Thread counts to measure with. None leaves the framework to its own default."""
        if not self.tunes_threads or device != "cpu":
            return [None]
        return sorted({1, usable_cores()})


_KNOWN = {
    # Which setting is better depends on the case, and a ratio means something only against the better one.
    "torch": Framework("torch", "torch", "torch", tunes_threads=True),
    "numpy": Framework("numpy", "numpy", "benchmarks.numpy_dialect"),
    "jax": Framework("jax", "jax", "benchmarks.jax_dialect"),
}


def parse_frameworks(names: str) -> list[Framework]:
    """The columns that `torch,flambeau` asks for. A name that comes again gets a number: `torch`, `torch#2`."""
    columns: list[Framework] = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        framework = _KNOWN.get(name, Framework(name, name, name))
        seen = sum(column.package == framework.package for column in columns)
        columns.append(replace(framework, label=f"{name}#{seen + 1}") if seen else framework)
    if not columns:
        raise ValueError(f"no framework named in {names!r}: expected names with commas between, as in torch,flambeau")
    return columns
