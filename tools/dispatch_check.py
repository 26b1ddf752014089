#!/usr/bin/env python3
"""Operations on tensors whose class carries them out (`__torch_dispatch__`): PyTorch's operator database, on wrappers without memory.

Each sample of torch.testing._internal.common_methods_invocations.op_db is called on plain tensors and on wrappers around the same tensors, whose
`__torch_dispatch__` unwraps, calls on, and wraps. The results must be equal, and so must the gradients of their sum, and what in-place
forms write. Which kernels a mode sees is compared with PyTorch's, too; that has figures of its own, because an operation may be made of
other parts here than there.

    dispatch_check.py                  all operators
    dispatch_check.py --op add         one operator, with every difference
    dispatch_check.py --kernels        and the kernels that a mode sees, where they are not PyTorch's
    dispatch_check.py --least 99       the exit status is 1 if fewer per cent of the samples agree (default 99)

Needs: torch (the oracle), numpy, expecttest, pytest, hypothesis.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from spec_check import Side, entries, matching, neutral

HIDDEN = ("aten.detach.default", "aten.lift_fresh.default")  # how often these are seen depends on who holds what
# What is drawn at random, or is whatever memory holds, is another number each time.
ANY_VALUE = "empty_like empty_strided empty new_empty new_empty_strided empty_permuted bernoulli multinomial normal uniform cauchy exponential geometric log_normal nn.functional.rrelu".split()


def wrapper_class(T):
    """A tensor around another one."""

    class Wrapper(T.Tensor):
        @staticmethod
        def __new__(cls, held):
            options = {"dtype": held.dtype, "device": held.device, "requires_grad": held.requires_grad}
            made = T.Tensor._make_wrapper_subclass(cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), **options)
            made.held = held.detach()
            return made

        __torch_function__ = T._C._disabled_torch_function_impl

        def __repr__(self, *, tensor_contents=None):
            return f"Wrapper({self.held})"

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            out = mapped(func(*mapped(args, held_by), **mapped(kwargs or {}, held_by)), lambda v: cls(v) if isinstance(v, T.Tensor) else v)
            return aliasing(func, args, kwargs or {}, out)

    held_by = lambda v: v.held if isinstance(v, Wrapper) else v  # noqa: E731
    aliasing = importlib.import_module(f"{T.__name__}.utils._python_dispatch").return_and_correct_aliasing
    return Wrapper


def mapped(value, function):
    """The same with every leaf replaced."""
    if type(value) is dict:
        return {name: mapped(v, function) for name, v in value.items()}
    if isinstance(value, list | tuple):
        items = [mapped(v, function) for v in value]
        return items if isinstance(value, list) else type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return function(value)


def seeing(T):
    """A mode that notes which kernels it carries out, and the list."""
    seen: list[str] = []

    class Seeing(importlib.import_module(f"{T.__name__}.utils._python_dispatch").TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    return Seeing(), seen


class Checked:
    def __init__(self, op, name, theirs, ours, options):
        self.op, self.name, self.options, self.theirs, self.ours = op, name, options, theirs, ours
        self.T, self.torch = ours.module, theirs.module
        self.Wrapper = wrapper_class(self.T)
        self.counts, self.differences, self.drawn = Counter(), [], False

    def run(self):
        if not self.op.supports_dtype(self.torch.float32, "cpu"):
            return {"name": self.name, "counts": self.counts, "differences": []}
        self.torch.manual_seed(0)
        random.seed(0)
        try:
            samples = list(itertools.islice(self.op.sample_inputs("cpu", self.torch.float32, requires_grad=self.op.supports_autograd), 60))
        except Exception:  # the database itself fails for some
            samples = []
        step = max(1, len(samples) // self.options["samples"])
        for i, sample in enumerate(samples[::step]):
            try:
                given = neutral([sample.input, list(sample.args), dict(sample.kwargs)], self.torch, {})
            except TypeError:
                continue
            self.drawn = bool(sample.kwargs.get("dropout_p"))
            self.compare(f"#{i}", given, self.op.op, self.op.name)
            if self.op.inplace_variant is not None and not sample.broadcasts_input:
                self.compare(f"#{i} in place", given, self.op.inplace_variant, None)
            if self.options["kernels"]:
                self.kernels(f"#{i} kernels", given, self.op.op, self.op.name)
        return {"name": self.name, "counts": self.counts, "differences": self.differences}

    def compare(self, label, given, function, name):
        plain = self.attempt(given, function, name, lambda t: t)
        if isinstance(plain, Exception):
            return
        self.counts["samples"] += 1
        found = self.attempt(given, function, name, self.Wrapper)
        problem = (
            f"{type(found).__name__}: {' '.join(str(found).split())[:300]}" if isinstance(found, Exception) else self.unlike(plain, found)
        )
        self.counts["agree"] += problem is None
        if problem is not None:
            self.differences.append({"label": label, "given": repr(given)[:400], "problem": problem})

    def attempt(self, given, function, name, dress):
        """(results, gradients), or the exception."""
        T = self.T
        made: dict = {}
        try:
            input, args, kwargs = self.ours.build(given, made)
            T.manual_seed(0)
            clothed = {id(t): dress(t) for t in made.values()}
            swap = lambda v: clothed.get(id(v), v) if isinstance(v, T.Tensor) else v  # noqa: E731
            input, args, kwargs = mapped(input, swap), mapped(args, swap), mapped(kwargs, swap)
            in_place = name is None
            run = self.function(function, name)
            if in_place and isinstance(input, T.Tensor):
                input = input * 1 if input.requires_grad else input.clone()
            results = run(input, *args, **kwargs)
            leaves = [t for t in clothed.values() if t.requires_grad]
            floats = [t for t in self.ours.tensors(results) if t.requires_grad]
            grads = []
            if leaves and floats:
                total = sum([(t.abs() if t.is_complex() else t).sum() for t in floats])
                grads = T.autograd.grad(total, leaves, allow_unused=True)
            bare = lambda v: v.held if isinstance(v, self.Wrapper) else v  # noqa: E731
            return mapped(results, bare), [bare(g) for g in grads]
        except Exception as problem:  # anything: an operation that is missing, or wrong
            return problem

    def unlike(self, plain, found):
        """How two answers differ, or None."""
        (want, want_grads), (have, have_grads) = plain, found
        theirs, ours = self.ours.tensors(want), self.ours.tensors(have)
        if len(theirs) != len(ours):
            return f"{len(ours)} results, not {len(theirs)}"
        for i, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            if isinstance(b, self.Wrapper) or a.shape != b.shape or a.dtype is not b.dtype or a.requires_grad < b.requires_grad:
                return f"result {i} is {type(b).__name__} {tuple(b.shape)} {b.dtype}, not {tuple(a.shape)} {a.dtype}"
            if self.op.name not in ANY_VALUE and not self.drawn and not self.close(a, b):
                return f"result {i} has other values"
        for i, (a, b) in enumerate(zip(want_grads, have_grads, strict=False)):
            if (a is None) != (b is None) or (a is not None and not self.drawn and not self.close(a, b)):
                return f"gradient {i} is {b} and not {a}"[:300]
        return None if len(want_grads) == len(have_grads) else "no gradients"

    def close(self, a, b):
        if a.dtype is not b.dtype or a.shape != b.shape:
            return False
        largest = float(a.detach().abs().nan_to_num(0, 0, 0).max()) if a.numel() and (a.is_floating_point() or a.is_complex()) else 1.0
        return self.T.allclose(a.detach(), b.detach(), rtol=1e-4, atol=1e-5 * max(largest, 1.0), equal_nan=True)

    def function(self, function, name):
        found = None if name is None else self.ours.find(name)
        if not callable(found) and name is not None and "." not in name:
            found = getattr(self.T.Tensor, name, None)
        return found if callable(found) else self.ours.function(function)

    def kernels(self, label, given, function, name):
        lists = []
        for side in (self.theirs, self.ours):
            mode, seen = seeing(side.module)
            try:
                input, args, kwargs = side.build(given, {})
                run = function if side is self.theirs else self.function(function, name)
                with side.module.no_grad(), mode:
                    run(input, *args, **kwargs)
            except Exception:
                return
            lists.append([kernel for kernel in seen if kernel not in HIDDEN])
        self.counts["calls"] += 1
        self.counts["seen alike"] += lists[0] == lists[1]
        if lists[0] != lists[1]:
            self.differences.append({"label": label, "given": repr(given)[:200], "problem": f"PyTorch {lists[0]}, here {lists[1]}"[:400]})


def work(options) -> None:
    """What a worker does: names on its input, one line of JSON for each on its output."""
    import warnings

    warnings.filterwarnings("ignore")
    import numpy as np
    import torch

    np.seterr(all="ignore")
    torch.set_num_threads(1)
    theirs, ours = Side(torch, "cpu", torch), Side(importlib.import_module("flambeau"), "cpu", torch)
    known = entries()
    for line in sys.stdin:
        name = line.strip()
        print(json.dumps(Checked(known[name], name, theirs, ours, options).run(), default=str), flush=True)


def checked(names, options, jobs):
    """The findings on each operator, from `jobs` processes; a process that dies costs the operator it was at."""
    waiting, results = list(names)[::-1], {}

    def loop():
        process = None
        while waiting:
            name = waiting.pop()
            command = [sys.executable, str(Path(__file__).resolve()), "--worker", json.dumps(options)]
            process = process or subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            process.stdin.write(name + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if line.startswith("{"):
                results[name] = json.loads(line)
            else:
                process.kill()
                results[name] = {
                    "name": name,
                    "counts": {},
                    "differences": [{"label": "", "problem": f"the process died ({process.wait()})"}],
                }
                process = None
        if process is not None:
            process.stdin.close()
            process.wait()

    threads = [threading.Thread(target=loop) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[name] for name in names]


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        work(json.loads(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", metavar="PATTERN", help="only these, with what differs")
    parser.add_argument("--samples", type=int, default=6, help="per operator, evenly spaced (default 6)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--kernels", action="store_true", help="compare which kernels a mode sees, too")
    parser.add_argument("--least", type=float, default=99.0, help="per cent that must agree for an exit status of 0 (default 99)")
    options = parser.parse_args()
    start = time.time()
    names = matching(entries(), options.op)
    results = checked(names, {"samples": options.samples, "kernels": options.kernels}, min(options.jobs, max(len(names), 1)))
    for r in results:
        for d in r["differences"] if options.op else r["differences"][:1]:
            print(f"{r['name']:32} {d['label']:12} {d['problem'][: 1000 if options.op else 150]}")
    total = sum((Counter(r["counts"]) for r in results), Counter())
    share = 100 * total["agree"] / max(total["samples"], 1)
    whole = sum(not r["differences"] for r in results)
    print(f"\ntime: {time.time() - start:.0f} s")
    if options.kernels:
        print(
            f"kernels: {total['seen alike']} of {total['calls']} calls are seen as in PyTorch ({100 * total['seen alike'] / max(total['calls'], 1):.1f}%)"
        )
    print(f"operators: {whole} of {len(results)} agree; samples: {total['agree']} of {total['samples']} agree ({share:.2f}%)")
    return 0 if share >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
