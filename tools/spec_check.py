#!/usr/bin/env python3
"""What operations say about tensors without data: shape, dtype, strides and aliasing of results, compared with PyTorch's meta device.

PyTorch's operator database (torch.testing._internal.common_methods_invocations.op_db) makes the samples. Each is built on the meta device in
PyTorch and here, both are called, and the results are compared: sizes, dtypes, strides (of dimensions longer than 1, where there are
elements), and which argument or earlier result they share memory with. The same call on the CPU here must look like that, too. In-place
and out= forms are samples of their own.

    spec_check.py                      all operators
    spec_check.py --op add             one operator, with every difference
    spec_check.py --op 'linalg.*'      a group (shell patterns, comma separated)
    spec_check.py --turned             with operands that lie in memory in another order: images channels last, matrices by columns
    spec_check.py --quiet              a table without those that agree everywhere
    spec_check.py --least 99           the exit status is 1 if fewer per cent agree (default 99)

A sample counts where PyTorch's meta device runs it. It agrees if our meta result is PyTorch's. Some of PyTorch's meta rules contradict its own CPU
operations, mostly in strides; our meta device says what our CPU does, and such a sample agrees if that is what PyTorch's CPU does (refusing
the call included). How many they are is in the last lines, with the number without them.

Needs: torch (the oracle), numpy, expecttest, pytest, hypothesis.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import importlib
import itertools
import json
import random
import subprocess
import sys
import time
import types
from collections import Counter
from pathlib import Path

DTYPES = "float32,int64,bool,complex64,bfloat16"
SKIP = {
    "jiterator_*": "compiles CUDA source text",
    "_refs.*": "PyTorch's own decompositions",
    "torch.ops.*": "building blocks of PyTorch's compiler",
    "sparse.*": "sparse",
    "to_sparse": "sparse",
    "chalf": "complex32",
    "bmm.triton_optimized": "CUDA only",
} | dict.fromkeys(
    "_softmax_backward_data _native_batch_norm_legit _batch_norm_with_update _upsample_bilinear2d_aa max_pool2d_with_indices_backward slice "
    "_unsafe_masked_index* _chunk_cat native_dropout_backward".split(),
    "building blocks of PyTorch's own, which users have no name for",
)
WIDE = {"bfloat16": "float32", "complex32": "complex64"}  # what NumPy has no word for travels as


# ---- values without a framework ------------------------------------------------------------------------------------


class Spec:
    """A tensor: its geometry in a storage, and the numbers there."""

    def __init__(self, tensor, torch):
        plain = tensor.detach().resolve_conj().resolve_neg()
        self.dtype = str(plain.dtype).partition(".")[2]
        self.shape, self.strides, self.offset = tuple(plain.shape), tuple(plain.stride()), plain.storage_offset()
        self.count = plain.untyped_storage().nbytes() // plain.element_size()
        flat = plain.as_strided((self.count,), (1,), 0)
        self.numbers = flat.to(getattr(torch, WIDE.get(self.dtype, self.dtype))).numpy().copy()
        self.wants_grad = tensor.requires_grad

    def __repr__(self):
        dense, step = [], 1
        for size in self.shape[::-1]:
            dense.insert(0, step)
            step *= max(size, 1)
        return f"{self.dtype}{list(self.shape)}" + ("" if tuple(dense) == self.strides else f" strided {list(self.strides)}")


class Named:
    """An object of the framework, by its name there."""

    def __init__(self, kind, name):
        self.kind, self.name = kind, name

    def __repr__(self):
        return str(self.name)


def turned(tensor):
    """The same tensor with its channels last, or its last two dimensions exchanged in memory."""
    order = list(range(tensor.dim()))
    order = [0, *order[2:], 1] if len(order) in (4, 5) else order[:-2] + order[:-3:-1]
    return tensor.permute(order).contiguous().permute([order.index(d) for d in range(len(order))])


def neutral(value, torch, known, turn=False):
    """A value of PyTorch as one that belongs to no framework; `turn`: its tensors in another memory order."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_nested:
            raise TypeError(f"layout {value.layout}")
        if id(value) not in known:
            known[id(value)] = Spec(turned(value) if turn else value, torch), value  # the tensor too, so that no other gets its id
        return known[id(value)][0]
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return Named("attribute", str(value).partition(".")[2])
    if isinstance(value, torch.device):
        return Named("device", value.type)
    if isinstance(value, torch.Generator):
        return Named("generator", "generator")
    if isinstance(value, torch.Size):
        return Named("size", tuple(value))
    if isinstance(value, torch.nn.Module):
        raise TypeError("a module among the arguments")
    if isinstance(value, slice):
        return slice(*[neutral(v, torch, known, turn) for v in (value.start, value.stop, value.step)])
    if isinstance(value, dict):
        return {k: neutral(v, torch, known, turn) for k, v in value.items()}
    if isinstance(value, list | tuple):
        items = [neutral(v, torch, known, turn) for v in value]
        return items if isinstance(value, list) else type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return Named("function", value) if callable(value) and not isinstance(value, type) else value


# ---- one framework on one device -----------------------------------------------------------------------------------


class Side:
    def __init__(self, module, device, oracle):
        self.module, self.device, self.oracle = module, device, oracle

    def find(self, path):
        found = self.module
        for part in path.split("."):
            nested = getattr(found, part, None)
            if nested is None and isinstance(found, types.ModuleType):
                try:
                    nested = importlib.import_module(f"{found.__name__}.{part}")
                except ImportError:
                    return None
            found = nested
            if found is None:
                return None
        return found

    def tensor(self, spec):
        dtype = getattr(self.module, spec.dtype)
        if self.device == "meta":
            flat = self.module.empty(spec.count, dtype=dtype, device="meta")
        else:
            flat = self.module.from_numpy(spec.numbers.copy()).to(dtype)
        if spec.offset == 0 and spec.strides == tuple(self.module.empty(spec.shape, device="meta").stride()) and flat.numel():
            made = flat.reshape(spec.shape).detach()
        else:
            made = flat.as_strided(spec.shape, spec.strides, spec.offset).detach()
        return made.requires_grad_() if spec.wants_grad else made

    def build(self, value, made):
        """The value here. `made` collects the tensors by what they were made from."""
        if isinstance(value, Spec):
            if value not in made:
                made[value] = self.tensor(value)
            return made[value]
        if isinstance(value, Named):
            return self.named(value)
        if isinstance(value, slice):
            return slice(*[self.build(v, made) for v in (value.start, value.stop, value.step)])
        if isinstance(value, dict):
            return {k: self.build(v, made) for k, v in value.items()}
        if isinstance(value, list | tuple):
            items = [self.build(v, made) for v in value]
            return items if isinstance(value, list) else type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return self.device if isinstance(value, str) and value == "cpu" else value

    def named(self, value):
        if value.kind == "attribute":
            return getattr(self.module, value.name)
        if value.kind == "device":
            return self.module.device(self.device)
        if value.kind == "generator":
            return self.module.Generator()
        return self.module.Size(value.name) if value.kind == "size" else self.function(value.name)

    def function(self, function):
        """The counterpart of a function of PyTorch, or of one in its database: the same code with this module's names."""
        if self.module is self.oracle:
            return function
        if isinstance(function, functools.partial):
            return functools.partial(self.function(function.func), *function.args, **function.keywords)
        if isinstance(function, types.FunctionType) and ".testing." in function.__module__:
            return self.rebound(function)
        name = function.__name__
        if isinstance(function, types.MethodDescriptorType | types.WrapperDescriptorType):
            return getattr(self.module.Tensor, name)
        for room in ("", "nn.functional.", "linalg.", "special.", "fft.", "Tensor.", "_VF."):
            there = functools.reduce(lambda found, part: getattr(found, part, None), (room + name).split("."), self.oracle)
            if there is function or (room == "Tensor." and there is not None):
                found = self.find(room + name)
                if found is None:
                    break
                return found
        raise AttributeError(f"{self.module.__name__} has no counterpart of {function}")

    def rebound(self, function):
        used, codes = set(), [function.__code__]
        for code in codes:
            used.update(code.co_names)
            codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        names = dict(function.__globals__)
        for name in used & set(names):
            value = names[name]
            if name == "wrapper_set_seed":  # which also looks after PyTorch's random state
                names[name] = lambda op, *args, **kwargs: op(*args, **kwargs)
            elif isinstance(value, types.ModuleType) and (value.__name__ + ".").startswith("torch.") and ".testing" not in value.__name__:
                names[name] = self.find(value.__name__[6:]) if "." in value.__name__ else self.module
            elif isinstance(value, types.FunctionType) and ".testing." in value.__module__ and value is not function:
                names[name] = self.rebound(value)
            elif value is self.oracle.Tensor:
                names[name] = self.module.Tensor
        cells = function.__closure__ and tuple([types.CellType(self.captured(c.cell_contents)) for c in function.__closure__])
        made = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
        made.__kwdefaults__ = function.__kwdefaults__
        return made

    def captured(self, value):
        """What a function of the database holds on to."""
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodDescriptorType):
            try:
                return self.function(value)
            except AttributeError:
                return value
        return value

    def tensors(self, value):
        if isinstance(value, self.module.Tensor):
            return [value]
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        return [t for item in items for t in self.tensors(item)]

    def looks(self, results, arguments):
        """Of each resulting tensor: shape, dtype, strides that matter, and whose memory it shares, at which offset. Of other results: their type."""
        found, owners = [], [(f"argument {i}", storage(t)) for i, t in enumerate(arguments)]
        for i, t in enumerate(self.tensors(results)):
            strides = [s if n > 1 else None for n, s in zip(t.shape, t.stride(), strict=True)] if t.numel() else None
            mine = storage(t)
            shared = next((name for name, other in owners if other == mine), None)
            owners.append((f"result {i}", mine))
            where = None if shared is None else [shared, t.storage_offset() if t.numel() else 0]
            found.append({"shape": list(t.shape), "dtype": str(t.dtype).partition(".")[2], "strides": strides, "shares": where})
        return found or [{"type": type(results).__name__}]


def storage(tensor):
    """Something that is equal for tensors that share their memory."""
    return tensor.untyped_storage()._cdata


# ---- one operator --------------------------------------------------------------------------------------------------


class Checked:
    def __init__(self, op, name, sides, options):
        self.op, self.name, self.options = op, name, options
        self.theirs, self.ours, self.their_cpu, self.our_cpu = sides
        self.torch = self.theirs.module
        self.counts, self.differences = Counter(), []

    def run(self):
        for dtype in self.options["dtypes"]:
            self.of_dtype(getattr(self.torch, dtype))
        return {"name": self.name, "counts": self.counts, "differences": self.differences}

    def of_dtype(self, dtype):
        if not self.op.supports_dtype(dtype, "cpu"):
            return
        self.torch.manual_seed(0)
        random.seed(0)
        most = self.options["samples"] or 1_000_000
        try:
            samples = list(itertools.islice(self.op.sample_inputs("cpu", dtype, requires_grad=False), max(most, 200)))
        except Exception:  # the database itself fails for some
            self.counts["samples PyTorch cannot make"] += 1
            return
        if len(samples) > most:  # evenly, the first and the last among them
            samples = [samples[round(i * (len(samples) - 1) / max(most - 1, 1))] for i in range(most)]
        for i, sample in enumerate(samples):
            try:
                given = neutral([sample.input, list(sample.args), dict(sample.kwargs)], self.torch, {}, self.options["turned"])
            except TypeError:
                self.counts["not strided"] += 1
                continue
            label = f"{str(dtype)[6:]} #{i}"
            self.compare(label, given, self.op.op, self.op.name)
            if self.op.inplace_variant is not None and not sample.broadcasts_input and isinstance(given[0], Spec):
                self.compare(label + " in place", given, self.op.inplace_variant, None)
            if self.op.supports_out and i < self.options["outs"]:
                self.compare(label + " out=", given, self.op.op, self.op.name, out=True)

    def compare(self, label, given, function, name, out=False):
        want, why = self.attempt(self.theirs, given, function, name, out)
        if want is None:
            self.counts["PyTorch's meta device raises"] += 1
            return
        self.counts["samples"] += 1
        found, why = self.attempt(self.ours, given, function, name, out)
        agrees = found == want
        real, _ = self.attempt(self.our_cpu, given, function, name, out)
        consistent = found is None or real is None or real == found
        excused = False
        if not agrees and (found == real):
            excused = self.attempt(self.their_cpu, given, function, name, out)[0] == found
        self.counts["agree"] += agrees or excused
        self.counts["agree with the CPU only"] += excused
        self.counts["our meta and CPU differ"] += not consistent
        if (agrees or excused) and consistent:
            return
        kind = "raises" if found is None else "differs" if not (agrees or excused) else "CPU differs"
        shown = {"label": label, "kind": kind, "given": repr(given), "torch": want, "ours": why if found is None else found}
        if not consistent or not agrees:
            shown["our CPU"] = real
        if not agrees or not consistent:
            shown["torch CPU"] = self.attempt(self.their_cpu, given, function, name, out)[0]
        self.differences.append(shown)

    def attempt(self, side, given, function, name, out):
        """(how the results look, None), or (None, why it was refused)."""
        try:
            made = {}
            input, args, kwargs = side.build(given, made)
            side.module.manual_seed(0)
            run = self.callable(side, function, name)
            if out:
                outs = self.outs(side, run, input, args, kwargs)
                kwargs["out"] = outs[0] if len(outs) == 1 else outs
            before = list(made.values())
            return side.looks(run(input, *args, **kwargs), before + (list(outs) if out else [])), None
        except Exception as problem:  # anything: an operation that is missing, or wrong
            return None, f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"

    def callable(self, side, function, name):
        if side.module is self.torch:
            return function
        if isinstance(function, types.FunctionType | functools.partial) and ".testing." in getattr(function, "__module__", ""):
            return side.function(function)
        found = None if name is None else side.find(name)
        if not callable(found) and name is not None and "." not in name:
            found = getattr(side.module.Tensor, name, None)
        return found if callable(found) else side.function(function)

    def outs(self, side, run, input, args, kwargs):
        """Empty tensors for out=, of the right dtypes: they are given their size."""
        kept = side.module.is_grad_enabled()
        results = side.tensors(run(input, *args, **kwargs))
        if not results or not kept:
            raise TypeError("no tensors to write to")
        return tuple([side.module.empty(0, dtype=t.dtype, device=t.device) for t in results])


# ---- all operators -------------------------------------------------------------------------------------------------


def entries():
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db}


def matching(names, patterns):
    wanted = [p.strip() for p in patterns.split(",")] if patterns else ["*"]
    return [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in wanted) and not any(fnmatch.fnmatchcase(n, p) for p in SKIP)]


def work(options) -> None:
    """What a worker does: names on its input, one line of JSON for each on its output."""
    import warnings

    warnings.filterwarnings("ignore")
    import numpy as np
    import torch

    np.seterr(all="ignore")
    torch.set_num_threads(1)
    ours = importlib.import_module(options["candidate"])
    sides = [Side(module, device, torch) for device in ("meta", "cpu") for module in (torch, ours)]
    known = entries()
    for line in sys.stdin:
        name = line.strip()
        found = Checked(known[name], name, sides, options).run()
        print(json.dumps(found, default=str), flush=True)


def checked(names, options, jobs):
    """The findings on each operator, from `jobs` processes; a process that dies costs the operator it was at."""
    waiting, running, results = list(names)[::-1], [], {}

    def start():
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", json.dumps(options)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def feed():
        import threading

        def loop():
            process = None
            while waiting:
                name = waiting.pop()
                process = process or start()
                process.stdin.write(name + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
                if line.startswith("{"):
                    results[name] = json.loads(line)
                else:
                    process.kill()
                    results[name] = {"name": name, "counts": {}, "differences": [], "died": f"the process died ({process.wait()})"}
                    process = None
            if process is not None:
                process.stdin.close()
                process.wait()

        thread = threading.Thread(target=loop)
        thread.start()
        return thread

    running = [feed() for _ in range(jobs)]
    for thread in running:
        thread.join()
    return [results[name] for name in names]


def show(results, options) -> None:
    width = max(len(r["name"]) for r in results)
    for r in results:
        count = Counter(r["counts"])
        good = count["agree"] == count["samples"] and not count["our meta and CPU differ"] and "died" not in r
        if options.quiet and good:
            continue
        first = r.get("died", "")
        if r["differences"]:
            d = r["differences"][0]
            first = f"{d['label']}: {d['kind']}" + (f": {d['ours']}" if d["kind"] == "raises" else "")
        cpu = f"{count['our meta and CPU differ']:4} unlike CPU" if count["our meta and CPU differ"] else " " * 15
        print(f"{r['name']:{width}} {count['agree']:5}/{count['samples']:<5} {cpu}  {first[:140]}")
    if options.op:
        for r in results:
            for d in r["differences"][: options.most]:
                print(f"\n== {r['name']} {d['label']}: {d['kind']}\n   {d['given'][:700]}")
                for key in ("torch", "ours", "our CPU", "torch CPU"):
                    if key in d:
                        print(f"   {key:10}", *(d[key] if isinstance(d[key], list) else [d[key]]), sep="\n      ")


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        work(json.loads(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", metavar="PATTERN", help="only these, with what differs")
    parser.add_argument("--most", type=int, default=20, help="so many differences of each operator are shown (default 20)")
    parser.add_argument("--dtypes", default=DTYPES, help=f"comma separated (default {DTYPES})")
    parser.add_argument(
        "--samples", type=int, default=20, help="per operator and dtype, evenly spaced over the first 200; 0: all (default 20)"
    )
    parser.add_argument("--outs", type=int, default=5, help="out= forms of so many samples per dtype (default 5)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--least", type=float, default=99.0, help="per cent that must agree for an exit status of 0 (default 99)")
    parser.add_argument("--candidate", default="flambeau", help="module to check; torch checks this tool (default flambeau)")
    parser.add_argument("--turned", action="store_true", help="operands in another memory order")
    parser.add_argument("--quiet", action="store_true", help="only operators with differences")
    parser.add_argument("--list", action="store_true", help="list the operators and stop")
    parser.add_argument("--json", metavar="FILE", help="write all findings to FILE")
    options = parser.parse_args()
    start = time.time()
    names = matching(entries(), options.op)
    if options.list or not names:
        print("\n".join(names) or "no operator matches")
        return 0 if names else 2
    told = {"dtypes": options.dtypes.split(",")} | {k: getattr(options, k) for k in ("samples", "outs", "candidate", "turned")}
    results = checked(names, told, min(options.jobs, len(names)))
    show(results, options)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))
    total = sum((Counter(r["counts"]) for r in results), Counter())
    kinds = Counter(d["kind"] for r in results for d in r["differences"])
    share = 100 * total["agree"] / max(total["samples"], 1)
    whole = sum(1 for r in results if r["counts"].get("agree", 0) == r["counts"].get("samples", 0) and "died" not in r)
    excused = total["agree with the CPU only"]
    print(f"\nnot counted: {total[REFUSED]} that PyTorch's meta device refuses")
    print(
        f"of those that disagree: {kinds['raises']} raise, {kinds['differs']} differ; {total['our meta and CPU differ']} differ from our CPU result"
    )
    print(
        f"PyTorch's meta device contradicts its CPU, and ours agrees with the latter: {excused} (without them {share - 100 * excused / max(total['samples'], 1):.2f}%)"
    )
    print(f"time: {time.time() - start:.0f} s")
    print(f"operators: {whole} of {len(results)} agree; samples: {total['agree']} of {total['samples']} agree ({share:.2f}%)")
    return 0 if share >= options.least and not any("died" in r for r in results) else 1


REFUSED = "PyTorch's meta device raises"

if __name__ == "__main__":
    sys.exit(main())
