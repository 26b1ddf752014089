#!/usr/bin/env python3
"""Calls carried out by their plans beside the same calls carried out the general way: PyTorch's operator database, bit by bit.

Each sample of torch.testing._internal.common_methods_invocations.op_db is called three times, so that its plan is made and used, and then with other
numbers of the same shapes: by the plan, and the general way. Results, strides, what shares memory, gradients of the results' sum, second
gradients, names of nodes, what in-place forms (recorded ones, too) and out= forms write, and exceptions must be the same.

    plan_check.py                  all operators
    plan_check.py --op add         one operator, with every difference
    plan_check.py --dtype float16  another dtype than float32

The exit status is 1 if fewer per cent of the samples than --least agree (default 100). Needs: torch, numpy, expecttest, pytest, hypothesis.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import itertools
import operator
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from dispatch_check import ANY_VALUE, mapped
from spec_check import Side, Spec, entries, matching, neutral


def rolled(spec):
    """The same tensor with its numbers in other places."""
    other = copy.copy(spec)
    other.numbers = np.roll(spec.numbers, 1)
    return other


class Checked:
    def __init__(self, op, name, torch, T, options):
        self.op, self.name, self.torch, self.T, self.options = op, name, torch, T, options
        self.side = Side(T, "cpu", torch)
        self.modes = importlib.import_module("flambeau.modes")
        self.counts, self.differences = Counter(), []

    def run(self):
        dtype = getattr(self.torch, self.options["dtype"])
        if not self.op.supports_dtype(dtype, "cpu"):
            return self.counts, []
        self.torch.manual_seed(0)
        random.seed(0)
        wants = self.op.supports_autograd and dtype.is_floating_point
        try:
            samples = list(itertools.islice(self.op.sample_inputs("cpu", dtype, requires_grad=wants), 80))
        except Exception:  # the database itself fails for some
            samples = []
        step = max(1, len(samples) // self.options["samples"])
        for i, sample in enumerate(samples[::step]):
            known = {}
            try:
                given = neutral([sample.input, list(sample.args), dict(sample.kwargs)], self.torch, known)
            except TypeError:
                continue
            for label, function, name in self.forms(sample):
                for recording in (True, False) if wants else (False,):
                    self.compare(f"#{i} {label}{'' if recording else ' no grad'}", given, function, name, recording)
        return self.counts, self.differences

    def forms(self, sample):
        yield "", self.op.op, self.op.name
        if self.op.method_variant is not None:
            yield "method", self.op.method_variant, None
        if self.op.operator_variant is not None:
            yield "operator", self.op.operator_variant, None
        if self.op.inplace_variant is not None and not sample.broadcasts_input:
            yield "in place", self.op.inplace_variant, None
        if self.op.supports_out:
            yield "out", self.op.op, self.op.name

    def compare(self, label, given, function, name, recording):
        run = self.function(function, name)
        if run is None:
            return
        if " out" in label:
            run = self.delivering(run)
        turned: dict = {}  # a tensor that is there twice stays one tensor
        other = mapped(given, lambda v: turned.setdefault(v, rolled(v)) if isinstance(v, Spec) else v)
        first = [self.attempt(run, given, recording, "place" in label) for _ in range(3)]
        planned = self.attempt(run, other, recording, "place" in label)
        general = self.generally(run, other, recording, "place" in label)
        cold = self.generally(run, given, recording, "place" in label)
        self.counts["samples"] += 1
        problem = next(filter(None, (*(self.unlike(cold, found) for found in first), self.unlike(general, planned))), None)
        self.counts["agree"] += problem is None
        if problem is not None:
            self.differences.append((label, problem, repr(given)[:300]))

    def delivering(self, run):
        """The out= form, with tensors like the results: what it returns, and these, in a list if they are not the same."""

        def delivered(*args, **kwargs):
            with self.T.no_grad():
                found = run(*args, **kwargs)
                outs = self.T.zeros_like(found) if isinstance(found, self.T.Tensor) else type(found)(map(self.T.zeros_like, found))
            result = run(*args, **kwargs, out=outs)
            same = result is outs or all(a is b for a, b in zip(result, outs, strict=True))
            return (result, outs) if same else [result, outs]

        return delivered

    def generally(self, *call):
        self.modes.enter()
        try:
            return self.attempt(*call)
        finally:
            self.modes.leave()

    def attempt(self, run, given, recording, in_place):
        """(results, gradients), or the exception."""
        T, made = self.T, {}
        try:
            input, args, kwargs = self.side.build(given, made)
            T.manual_seed(0)
            with T.set_grad_enabled(recording):
                if in_place and isinstance(input, T.Tensor):
                    input = input * 1 if input.requires_grad and recording else input.detach().clone()
                results = run(input, *args, **kwargs)
                leaves = [t for t in made.values() if t.requires_grad]
                floats = [t for t in self.side.tensors(results) if t.requires_grad] if recording else []
                grads, twice = (), ()
                if leaves and floats:
                    total = sum([(t.abs() if t.is_complex() else t).square().sum() for t in floats])
                    try:
                        grads = T.autograd.grad(total, leaves, allow_unused=True, create_graph=True)
                        again = [g for g in grads if g is not None and g.requires_grad]
                        if again:
                            twice = T.autograd.grad(
                                sum([(g.abs() if g.is_complex() else g).sum() for g in again]), leaves, allow_unused=True
                            )
                    except (NotImplementedError, RuntimeError) as problem:
                        twice = (repr(problem)[:60],)
            nodes = [type(t.grad_fn).__name__ for t in floats]
            shared = [any(t._base is not None and t._base is m for m in made.values()) for t in self.side.tensors(results)]
            return results, grads, twice, nodes, shared
        except Exception as problem:  # anything: an operation that is missing, or wrong
            return problem

    def unlike(self, want, have):
        """How two answers differ, or None."""
        if isinstance(want, Exception) or isinstance(have, Exception):
            return None if type(want) is type(have) else f"{have!r}"[:300] + f" and not {want!r}"[:200]
        if want[3:] != have[3:]:
            return f"nodes and views are {have[3:]} and not {want[3:]}"
        if type(want[0]) is not type(have[0]):
            return f"the result is a {type(have[0]).__name__}, not a {type(want[0]).__name__}"
        for what, a, b in zip(("result", "gradient", "second gradient"), want, have, strict=False):
            ours, theirs = self.side.tensors(b), self.side.tensors(a)
            if len(ours) != len(theirs):
                return f"{len(ours)} {what}s, not {len(theirs)}"
            for i, (x, y) in enumerate(zip(theirs, ours, strict=True)):
                if not self.same(x, y):
                    return f"{what} {i} is {y} {y.stride()} and not {x} {x.stride()}"[:600]
        return None

    def same(self, x, y):
        if x.dtype is not y.dtype or x.shape != y.shape or x.stride() != y.stride() or x.requires_grad != y.requires_grad:
            return False
        if self.op.name in ANY_VALUE:
            return True
        x, y = x.detach().contiguous(), y.detach().contiguous()
        return self.T.equal(x, y) or self.T.allclose(x, y, 1e-5, 1e-6, equal_nan=True)

    def function(self, function, name):
        found = None if name is None else self.side.find(name)
        if not callable(found) and name is not None and "." not in name:
            found = getattr(self.T.Tensor, name, None)
        try:
            return found if callable(found) else self.side.function(function)
        except AttributeError:
            return getattr(operator, function.__name__, None)


def check(name, options):
    import warnings

    warnings.filterwarnings("ignore")
    import torch

    np.seterr(all="ignore")
    torch.set_num_threads(1)
    return name, *Checked(entries()[name], name, torch, importlib.import_module("flambeau"), options).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", metavar="PATTERN", help="only these, with what differs")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=6, help="per operator, evenly spaced (default 6)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--least", type=float, default=100.0)
    options = parser.parse_args()
    start, total, whole = time.time(), Counter(), 0
    names = matching(entries(), options.op)
    with ProcessPoolExecutor(min(options.jobs, max(len(names), 1))) as pool:
        for name, counts, differences in pool.map(check, names, [vars(options)] * len(names)):
            total += counts
            whole += not differences
            for label, problem, given in differences if options.op else differences[:1]:
                print(f"{name:32} {label:18} {problem[: 1500 if options.op else 170]}{'   ' + given if options.op else ''}", flush=True)
    share = 100 * total["agree"] / max(total["samples"], 1)
    print(f"\ntime: {time.time() - start:.0f} s")
    print(f"operators: {whole} of {len(names)} agree; samples: {total['agree']} of {total['samples']} agree ({share:.2f}%)")
    return 0 if share >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
