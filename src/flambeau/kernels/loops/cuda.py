"""Loops as CUDA C++: threads, the lanes, share a row, and what they found is combined in an order that depends on the shape alone. So a result has
the same bits in every run. Nothing is kept in rows: computing it again is cheaper here.

    rows       the lanes are neighbours, each takes every so-manieth pack of the row
    columns    rows lie side by side: neighbours take neighbouring packs of them, and lanes every so-manieth place
    lines      a row is cut into lines that lie apart, as a channel of all images is
    stages     of few long rows each is cut into parts: a launch for each pass, which finds of every part what there is to find (`parts`), and joins what
               the passes before it found; the last one writes
    listed     rows are tensors, each with an address and a length of its own: what is done to all parameters of a model

Where stores are summed over the rows, threads that share a row go from row to row and add up what falls to them in registers; then those of a block
add up theirs, for each total into a row of parts, a row for each block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flambeau.kernels.language.expr import Expr, load, loads
from flambeau.kernels.language.print_c import TYPES, operand_dtype, storage_of
from flambeau.kernels.language.print_cuda import NOTE, PREAMBLE, THREADS, CudaPrinter
from flambeau.kernels.loops.language import EACH, LINE, ROUNDED, ROW, SHARED, Loop
from flambeau.kernels.loops.passes import Pass, Reduced, passes

AT_ONCE = 4  # packs on their way from memory to a thread, of a loop that reads one operand along the row; half as many of each of several
TENSORS = 480  # addresses and lengths that a kernel's parameters have room for: most of their 4 kB


@dataclass(frozen=True)
class Instance:
    """One kernel of a loop.

    lanes     threads that share a row
    pack      elements read and written at once: of a row, or of rows side by side
    items     packs that a thread keeps in registers, so that a row is read once; 0 for rows too long for that, which are read in every pass
    columns   whether neighbouring threads take neighbouring rows
    stage     the one pass that is done: what is found in each part is written down. After the last of them the stores are written. None: all in one
    listed    whether rows are tensors of a list
    lines     whether rows are cut into lines
    """

    loop: Loop
    dtype: str
    lanes: int
    pack: int = 1
    items: int = 0
    columns: bool = False
    stage: int | None = None
    listed: bool = False
    lines: bool = False

    @property
    def function(self) -> str:
        return f"fl_{self.loop.name.replace('.', '_')}_{TYPES[self.dtype][0]}{'' if self.stage is None else f'_{self.stage}'}"

    @property
    def at_once(self) -> int:
        """Packs of an operand that a thread has at hand."""
        return self.items or (AT_ONCE if self.loop.loads.count(ROW) < 2 else AT_ONCE // 2)

    @property
    def numbers(self) -> tuple[str, ...]:
        """How operands move of which there is one number for each row. Rows that are no lines have no others."""
        return (EACH,) if self.lines else (EACH, LINE)

    @property
    def room(self) -> int:
        """How many tensors of a list a launch has room for: the addresses of their loads, and how long they are. Stores along them are written over loads."""
        return TENSORS // (len(self.loop.loads) + 1)


def print_loop(k: Instance) -> str:
    """The CUDA C++ of one kernel. It takes the stores, the loads, the options; the parts, where rows are cut into such; the page for notes, where the loop
    may have one to make; how far apart numbers for rows lie, and those for lines; then rows and how these lie."""
    lines = [*_Text(k).lines()]
    together = _COLUMNS if k.columns else _ROWS
    head = PREAMBLE + (NOTE if k.loop.error is not None else "") + (together if any("together" in line for line in lines) else "")
    return head + (_LINES if k.lines else "") + "\n".join(lines) + "\n"


class _Text:
    """Operands are a0, a1 ..., stores y0, y1 ...; b0 and z0 begin at the row, r0 are packs in registers, t1 totals in registers; found0 is what the first
    pass found, s0 a number of it. Of rows side by side a thread has `COLS`, and `c` is the one at hand."""

    def __init__(self, k: Instance):
        self.k, self.loop = k, k.loop
        self.passes = passes(k.loop, room=0, puts=False, at_once=not k.items)
        self.home = {r.name.value: i for i, step in enumerate(self.passes.reducing) for r in step.reductions}
        self.p, self.wide = _Printer(k, self.home), _Exact(k, self.home)
        self.cols, self.along = (k.pack, 1) if k.columns else (1, k.pack)
        self.each = [i for i, access in enumerate(self.loop.loads) if access in k.numbers]
        self.of_lines = k.lines and LINE in self.loop.loads

    def lines(self) -> Iterator[str]:
        k, p, loop = self.k, self.p, self.loop
        for number, step in enumerate(self.passes.reducing):
            yield from self.found(number, step)
        if k.listed:
            yield f"struct Pieces {{ long long at[{len(loop.loads)}][{k.room}], size[{k.room}]; }};"
        yield f'extern "C" __global__ void __launch_bounds__({THREADS})'
        yield f"{k.function}({', '.join(self.parameters())}) {{"
        across = THREADS // k.lanes
        lane, mine = (f"/ {across}", f"% {across}") if k.columns else (f"% {k.lanes}", f"/ {k.lanes}")
        yield f"    const int lane = threadIdx.x {lane}, mine = threadIdx.x {mine};"
        yield f"    enum {{ COLS = {self.cols} }};" + ("" if k.columns else " const int c = 0;")
        yield from (f"    const {p.ctype_of_kind(kind)} p{i} = ({p.ctype_of_kind(kind)})q{i};" for i, kind in enumerate(loop.params))
        if loop.totals:
            yield from (f"    {p.compute} t{i}[{k.items}][{k.pack}] = {{}};" for i in loop.totals)
            groups = THREADS // k.lanes
            yield f"    for (long long first = (long long)blockIdx.x * {groups}; first < rows; first += (long long)gridDim.x * {groups}) {{"
            yield from self.row("first + mine")
            yield "    }"
            yield from self.totals(groups)
        else:
            yield from self.row(f"((long long)blockIdx.x * {THREADS // k.lanes} + mine) * COLS")
        yield "}"

    def parameters(self) -> Iterator[str]:
        k, loop = self.k, self.loop
        stores = [
            (access, f"{storage_of(kind, k.dtype)} *y{i}")
            for i, (access, kind) in enumerate(zip(loop.stores, loop.store_kinds, strict=True))
        ]
        loads = [f"const {self.storage(i)} *a{i}" for i in range(len(loop.loads))]
        if k.listed:
            yield "const __grid_constant__ Pieces all"
        yield from (text for access, text in stores if not (k.listed and access == ROW))
        yield from () if k.listed else loads
        yield from (f"double q{i}" for i in range(loop.options))
        yield from (f"Found{i} *parts{i}" for i in range(len(self.passes.reducing)) if k.stage is not None)
        yield from ["int64_t *note"] * (loop.error is not None)
        numbers = ["rows", "begins", "splits"]
        if not k.listed:
            numbers = [f"e{i}" for i in self.each] + [*"gwl"] * self.of_lines
            numbers += ["rows", "n", "inner", "apart", "beside", "step", "chunk", "splits"]
        yield from (f"long long {name}" for name in numbers + ["length", "line"] * k.lines)

    def storage(self, operand: int) -> str:
        return storage_of(self.loop.kinds[operand], self.k.dtype)

    # -- one row

    def row(self, number: str) -> Iterator[str]:
        """The work on one row."""
        k, p, loop = self.k, self.p, self.loop
        yield from self.where_it_lies(number)
        for i in self.each:
            read = p.read(loop.kinds[i], f"*b{i}" if k.listed else f"a{i}[(row + c) * e{i}]")
            yield f"    {p.held(loop.kinds[i])} x{i}[COLS]; {EVERY} x{i}[c] = is ? {read} : 0;"
        if k.items:
            yield f"    const long long from = begin + (long long)lane * {self.along};"
            yield from self.loaded([i for i, access in enumerate(loop.loads) if access == ROW])
        for place, step in enumerate(self.passes.reducing):
            if k.stage is None or place <= k.stage:
                yield from self.reduce(place, step)
        if k.stage in (None, len(self.passes.reducing)):
            yield from self.written()

    def where_it_lies(self, number: str) -> Iterator[str]:
        """`row` and whether it is one; `begin` and `end` of the part, and where the row begins in each operand."""
        k, loop = self.k, self.loop
        if k.listed:
            yield "    const long long row = begins + blockIdx.y, split = blockIdx.x, n = all.size[blockIdx.y]; const bool is = true;"
            yield f"    const long long chunk = ((n + splits - 1) / splits + {k.lanes * k.pack - 1}) / {k.lanes * k.pack} * {k.lanes * k.pack};"
        else:
            yield f"    const long long row = {number}, split = {'blockIdx.y' if k.stage is not None else 0};"
            yield "    const bool is = row < rows; /* of a row beyond the last there is nothing */"
            yield "    const long long outer = inner == 1 ? row : row / inner, within = row - outer * inner;"
            yield "    const long long base = is ? outer * apart + within * beside : 0;"
        yield "    const long long begin = split * chunk, end = !is ? 0 : begin + chunk < n ? begin + chunk : n;"
        for i, access in enumerate(loop.loads):
            if k.listed or access == ROW:
                begins = f"(const {self.storage(i)} *)all.at[{i}][blockIdx.y]" if k.listed else f"a{i} + base"
                yield f"    const {self.storage(i)} *const b{i} = {begins};"
            elif access not in k.numbers:
                yield f"    const {self.storage(i)} *const b{i} = a{i}{' + outer * g + within * w' if access == LINE else ''};"
        for i, access in enumerate(loop.stores):
            if access == ROW:
                t = storage_of(loop.store_kinds[i], k.dtype)
                yield f"    {t} *const z{i} = {f'({t} *)b{loop.over[i]}' if k.listed else f'y{i} + base'};"

    def loaded(self, operands: list[int]) -> Iterator[str]:
        """Packs on their way, all at once."""
        k, count = self.k, self.k.at_once
        packs = {i: f"Pack<{self.storage(i)}, {k.pack}>" for i in operands}
        yield from (f"    {pack} r{i}[{count}];" for i, pack in packs.items())
        if packs:
            reads = " ".join(f"r{i}[k] = *(const {pack} *)(b{i} + {_place(k, 'at')});" for i, pack in packs.items())
            yield f"    {UNROLL}for (int k = 0; k < {count}; k++) {{"
            yield f"        const long long at = from + (long long)k * {k.lanes * self.along};"
            yield f"        if (at < end) {{ {reads} }}\n    }}"

    def walk(self, steps: list[tuple[list[Expr], list[str]]]) -> Iterator[str]:
        """Over the packs of this thread, so many at once: for each of the steps (values, lines), the lines, made by `elements` or as they are."""
        if self.k.items:
            yield "    {"
        else:
            stride = self.k.at_once * self.k.lanes * self.along
            yield f"    for (long long from = begin + (long long)lane * {self.along}; from < end; from += {stride}) {{"
            needed = sorted({i for values, _ in steps for v in values for i in loads(v) if self.loop.loads[i] == ROW})
            yield from self.loaded(needed)
        for _, lines in steps:
            yield from (f"        {line}" for line in lines)
        yield "    }"

    def elements(self, values: list[Expr], finish, before: Sequence[str] = (), after: Sequence[str] = ()) -> tuple[list[Expr], list[str]]:
        """A step of a walk: statements for every element of the packs at hand."""
        k, p = self.k, self.p
        needed = sorted({i for v in values for i in loads(v)})
        lines = [f"{UNROLL}for (int k = 0; k < {k.at_once}; k++) {{"]
        lines += [f"    const long long at = from + (long long)k * {k.lanes * self.along}; if (at < end) {{", *before]
        for i in [i for i in needed if self.loop.loads[i] == SHARED]:
            lines.append(
                f"    const Pack<{self.storage(i)}, {self.along}> v{i} = *(const Pack<{self.storage(i)}, {self.along}> *)(b{i} + at);"
            )
        for i in [i for i in needed if self.loop.loads[i] == LINE and k.lines]:
            read = p.read(self.loop.kinds[i], f"b{i}[line_of(at, length) * l]")
            lines.append(f"    const {p.held(self.loop.kinds[i])} x{i} = {read};")
        lines.append(f"    {UNROLL}for (int j = 0; j < {k.pack}; j++) {{")
        lines.append(
            "        const int c = j; const long long i = at; (void)i;" if k.columns else "        const long long i = at + j; (void)i;"
        )
        for i in [i for i in needed if self.loop.loads[i] in (ROW, SHARED)]:
            source = f"r{i}[k].item[j]" if self.loop.loads[i] == ROW else f"v{i}.item[{0 if k.columns else 'j'}]"
            lines.append(f"        const {p.held(self.loop.kinds[i])} x{i} = {p.read(self.loop.kinds[i], source)};")
        found, texts = p.bodies(values)
        return values, [*lines, *(f"        {line}" for line in found), f"        {finish(texts)}", "    }", *after, "}}"]

    def number(self, name: Expr, value: Expr) -> str:
        """A number of the row, under its name."""
        exact = value.op == "precise"
        found, text = (self.wide if exact else self.p).body(value.args[0] if exact else value)
        t = self.p.ctype(name)
        return f"    {t} {name.value}[COLS]; {EVERY} {{ {' '.join(found)} {name.value}[c] = ({t}){text}; }}"

    # -- passes

    def found(self, number: int, step: Pass) -> Iterator[str]:
        """What a pass finds of a row, or of a part of it: nothing at first, and how two of it are joined."""
        fields = [(self.held(r), r.name.value) for r in step.reductions] + [
            ("int64_t", f"{r.name.value}_at") for r in step.reductions if r.placed
        ]
        name, starts = f"Found{number}", [self.start(r) for r in step.reductions] + [HIGHEST for r in step.reductions if r.placed]
        yield f"struct {name} {{ {' '.join(f'{t} {field};' for t, field in fields)} }};"
        yield f"__device__ inline {name} none{number}() {{ return {name}{{{', '.join(starts)}}}; }}"
        yield f"__device__ inline {name} joined({name} a, const {name} &b) {{"
        yield from (
            f"    {JOINED[r.op]}".replace("@", r.name.value).replace("#", self.shifted(r)).replace("REAL", self.p.compute)
            for r in step.reductions
            if r.op == "powers"
        )
        yield from (f"    {(PLACED if r.placed else JOINED[r.op])}".replace("@", r.name.value).replace("<>", "<" if r.op == "least" else ">")
                    for r in step.reductions if r.op != "powers")  # fmt: skip
        yield "    return a;\n}"
        shuffled = ", ".join(f"__shfl_xor_sync(0xffffffffu, x.{field}, distance)" for _, field in fields)
        yield f"__device__ inline {name} of_lane({name} x, int distance) {{ return {name}{{{shuffled}}}; }}"

    def shifted(self, r: Reduced) -> str:
        return "" if r.peak is None else r.peak.value

    def held(self, r: Reduced) -> str:
        """The type of what is carried from element to element: sums in double precision, what is one of the elements as it is computed."""
        if not self.p.is_float:
            return "int64_t"
        return "double" if r.op in SUMS else self.p.compute

    def start(self, r: Reduced) -> str:
        if r.op in SUMS:
            return "1" if r.op == "product" else "0"
        if r.start is not None:
            return self.p.literal(r.start)
        lowest, highest = ("-INFINITY", "INFINITY") if self.p.is_float else ("INT64_MIN", HIGHEST)
        return highest if r.op == "least" else lowest

    def reduce(self, number: int, step: Pass) -> Iterator[str]:
        """Every thread's share of what the pass finds, then what it is together."""
        k, t, found = self.k, self.p.compute, f"found{number}"
        yield from (self.number(*item) for item in step.numbers)
        yield f"    Found{number} {found}[COLS]; {EVERY} {found}[c] = none{number}();"
        if k.stage is not None and number < k.stage:
            yield f"    for (long long k = lane; is && k < splits; k += {k.lanes}) {EVERY} {found}[c] = joined({found}[c], parts{number}[k * rows + row + c]);"
        else:
            for r in [r for r in step.reductions if r.placed]:
                first = f"begin + (long long)lane * {self.along}"
                yield f"    {EVERY} {found}[c].{r.name.value}_at = {first} < end ? {first} : {HIGHEST};"
            yield from self.walk(list(self.gathered(found, step.reductions)))
        yield f"    {EVERY} {found}[c] = together<{k.lanes}>({found}[c]);"
        if number == k.stage:
            yield f"    if (is && lane == 0) {EVERY} parts{number}[split * rows + row + c] = {found}[c];"
            return
        for r in step.reductions:
            whole = f"{found}[c].{r.name.value}"
            if r.op == "powers":
                yield f"    {EVERY} if ({found}[c].{r.peak.value} == -INFINITY) {whole} = NAN;"
            if r.op == "gaps":
                yield f"    {EVERY} {whole} = (double)n * {found}[c].{r.peak.value} - {whole};"
            yield f"    {t} {r.name.value}[COLS]; {EVERY} {r.name.value}[c] = ({t}){whole};"

    def gathered(self, found: str, reductions: tuple[Reduced, ...]) -> Iterator[tuple[list[Expr], list[str]]]:
        """The steps of a walk: a few elements are added as they are computed, and the sum then widened. Exponentials wait for the peak of those at hand."""
        t, powers = self.p.compute, [r for r in reductions if r.op == "powers"]
        first = [r for r in reductions if r.op != "powers"]
        short = [r for r in reductions if r.op in SUMS and r.op != "product" and t == "float"]
        yield [], [f"{t} {r.name.value}_few[COLS] = {{}};" for r in short]
        for r in powers:
            name, high = r.name.value, self.shifted(r)
            yield [], [f"{t} {name}_by[COLS]; {EVERY} {name}_by[c] = {found}[c].{high};"]

        def sums(r: Reduced) -> str:
            return f"{r.name.value}_few[c]" if r in short else f"{found}[c].{r.name.value}"

        def take(r: Reduced, text: str) -> str:
            if r.op in SUMS:
                return f"{sums(r)} {'*' if r.op == 'product' else '+'}= {text};"
            text = TAKEN_PLACED if r.placed else TAKEN[r.op]
            return text.replace("@", f"{found}[c].{r.name.value}").replace("<>", "<" if r.op == "least" else ">")

        def finish(texts: list[str]) -> str:
            return " ".join(f"{{ const {t} v = {text}; {take(r, 'v')} }}" for r, text in zip(first, texts, strict=True))

        yield self.elements([r.value for r in first], finish)
        for r in powers:
            name, high = r.name.value, self.shifted(r)
            exp = self.p.call("exp", f"{name}_by[c] - {name}_base[c]")
            yield (
                [],
                [
                    f"{t} {name}_base[COLS]; {EVERY} {name}_base[c] = {found}[c].{high} == -INFINITY ? ({t})0 : {found}[c].{high};",
                    f"{EVERY} if ({found}[c].{high} != {name}_by[c]) {found}[c].{name} *= {exp};",
                ],
            )
            yield self.elements(
                [r.value], lambda texts, r=r, name=name: f"{sums(r)} += {self.p.call('exp', f'{texts[0]} - {name}_base[c]')};"
            )
        yield [], [f"{EVERY} {found}[c].{r.name.value} += {r.name.value}_few[c];" for r in short]

    # -- stores

    def written(self) -> Iterator[str]:
        """What is one number for each row, by one of its lanes; then the last walk."""
        k, p, loop = self.k, self.p, self.loop
        for i, value in self.passes.made.items():
            found, text = self.wide.body(value)
            stored = self.wide.stored(operand_dtype(loop.store_kinds[i], k.dtype), text, "T")
            yield f"    if (is && lane == 0 && split == 0) {EVERY} {{ {' '.join(found)} y{i}[row + c] = {stored}; }}"
        if not self.passes.stores:
            return
        yield from (self.number(*item) for item in self.passes.numbers)
        along, s = [i for i in self.passes.stores if i not in loop.totals], p.storage

        def finish(texts: list[str]) -> str:
            return " ".join(
                f"t{i}[k][j] += {text};" if i in loop.totals else f"o{i}.item[j] = {p.stored(p.dtype, text, 'T')};"
                for i, text in zip(self.passes.stores, texts, strict=True)
            )

        if k.listed and (same := self.unchanged()):
            yield f"    if ({same}) return;"
        before = [f"    Pack<{s}, {k.pack}> o{i};" for i in along]
        after = [f"    *(Pack<{s}, {k.pack}> *)(z{i} + {_place(k, 'at')}) = o{i};" for i in along]
        yield from self.walk([self.elements(list(self.passes.stores.values()), finish, before, after)])

    def unchanged(self) -> str:
        """When all that is written stays what it is: a number that says so."""
        found = {v.args[0] for i, v in self.passes.stores.items() if v.op == "where" and v.args[1] is load(self.loop.over[i])}
        stays = found.pop() if len(found) == 1 else None
        return f"{self.p.leaf(stays)[:-3]}[0]" if stays is not None and stays.op == "local" else ""

    def totals(self, groups: int) -> Iterator[str]:
        """What the groups of threads in this block added up, added up: in shared memory, in the order of the groups."""
        k, t = self.k, self.p.compute
        across = k.lanes * k.pack
        yield f"    __shared__ {t} all[{groups}][{across}];"
        for i in self.loop.totals:
            yield f"    {UNROLL}for (int k = 0; k < {k.items}; k++) {{"
            yield "        __syncthreads();"
            yield f"        for (int j = 0; j < {k.pack}; j++) all[mine][lane * {k.pack} + j] = t{i}[k][j];"
            yield "        __syncthreads();"
            yield f"        for (int i = threadIdx.x; i < {across} && k * {across} + i < n; i += {THREADS}) {{"
            yield f"            {t} sum = 0;"
            yield f"            for (int g = 0; g < {groups}; g++) sum += all[g][i];"
            yield f"            y{i}[blockIdx.x * n + k * {across} + i] = sum;"
            yield "        }\n    }"


def _place(k: Instance, at: str) -> str:
    """How far from the beginning of its row a place is."""
    if k.lines:
        return f"place({at}, length, line)"
    return at if k.listed or (k.pack > 1 and not k.columns) else f"({at}) * step"


class _Printer(CudaPrinter):
    """Numbers of a row are those of the one at hand."""

    def __init__(self, k: Instance, home: dict[str, int]):
        super().__init__(k.dtype)
        self.k, self.loop, self.home = k, k.loop, home

    def held(self, kind: str) -> str:
        """The type of what was read of a kind."""
        return self.compute if kind in ROUNDED else self.ctype_of_kind(kind)

    def read(self, kind: str, text: str) -> str:
        return f"({self.compute}){text}" if kind in ROUNDED else super().read(kind, text)

    def leaf(self, e: Expr) -> str:
        if e.op == "local" and e.value.removesuffix("_wide") in self.home and e.value.endswith("_wide"):
            return self.unrounded(e.value.removesuffix("_wide"))
        is_number = e.op == "local" or (e.op == "load" and self.loop.loads[e.value] in self.k.numbers)
        return f"{super().leaf(e)}[c]" if is_number else super().leaf(e)

    def unrounded(self, name: str) -> str:
        """What a pass found, as it was carried from element to element."""
        return f"found{self.home[name.removesuffix('_at')]}[c].{name}"

    def picked(self, operand: int, at: str) -> str:
        there = _place(self.k, at)
        other = "p0" if self.loop.params[:1] == ("i64",) else 0
        note = f"(fl_note(note, {self.loop.error}, {at}, n, row + c, {other}), NAN)" if self.loop.error is not None else "NAN"
        return f"(({at}) >= 0 && ({at}) < n ? {self.read('T', f'b{operand}[{there} + c]')} : {note})"


class _Exact(_Printer):
    """The same for what is one number for each row: computed in double precision, of what was found and not rounded yet."""

    def __init__(self, k: Instance, home: dict[str, int]):
        super().__init__(k, home)
        self.element = _Printer(k, home)
        self.suffix, self.storage, self.compute = TYPES["float64" if self.is_float else "int64"]
        self.dtype = "float64" if self.is_float else "int64"

    def leaf(self, e: Expr) -> str:
        if e.op == "local" and e.value.removesuffix("_at") in self.home:
            return self.unrounded(e.value)
        if e.op == "param" and e.kind == "T":
            return f"q{e.value}"
        return super().leaf(e)

    def picked(self, operand: int, at: str) -> str:
        return self.element.picked(operand, at)


UNROLL = '_Pragma("unroll") '
EVERY = f"{UNROLL}for (int c = 0; c < COLS; c++)"

SUMS = ("total", "product", "powers", "gaps")
HIGHEST = "(-1 - INT64_MIN)"

# What two shares are together, which is left in the first. Of equals the first place counts, and of NaNs the first.
JOINED = {
    "total": "a.@ += b.@;",
    "gaps": "a.@ += b.@;",
    "product": "a.@ *= b.@;",
    "peak": "a.@ = b.@ > a.@ ? b.@ : a.@;",
    "greatest": "a.@ = b.@ > a.@ || b.@ != b.@ ? b.@ : a.@;",
    "least": "a.@ = b.@ < a.@ || b.@ != b.@ ? b.@ : a.@;",
    "powers": "const REAL high = b.# > a.# ? b.# : a.#, base = high == -INFINITY ? (REAL)0 : high; "
    "a.@ = a.@ * exp(a.# - base) + b.@ * exp(b.# - base);",
}
PLACED = (
    "if (b.@ <> a.@ || (b.@ != b.@ && a.@ == a.@) || ((b.@ == a.@ || (b.@ != b.@ && a.@ != a.@)) && b.@_at < a.@_at)) "
    "a.@ = b.@, a.@_at = b.@_at;"
)
TAKEN = {
    "peak": "if (v > @) @ = v;",
    "greatest": "if (v > @ || v != v) @ = v;",
    "least": "if (v < @ || v != v) @ = v;",
}
TAKEN_PLACED = "if (v <> @ || (v != v && @ == @)) @ = v, @_at = i;"  # a thread goes forward, and its first place is noted before

# Rows in lines. A pack is of one line.
_LINES = """
__device__ inline uint32_t line_of(long long at, long long length) { return (uint32_t)at / (uint32_t)length; }
__device__ inline long long place(long long at, long long length, long long line) {
    const uint32_t number = line_of(at, length);
    return number * line + ((uint32_t)at - number * (uint32_t)length);
}
"""

# What the lanes of a row hold, joined, for each of them. All threads of a block come here together.
_ROWS = f"""
template <int LANES, class Found> __device__ inline Found together(Found mine) {{
    for (int distance = (LANES < 32 ? LANES : 32) / 2; distance > 0; distance /= 2) mine = joined(mine, of_lane(mine, distance));
    if constexpr (LANES > 32) {{
        __shared__ Found warps[{THREADS // 32}];
        __syncthreads();
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
        __syncthreads();
        const int first = threadIdx.x / LANES * (LANES / 32);
        mine = warps[first];
        for (int w = 1; w < LANES / 32; w++) mine = joined(mine, warps[first + w]);
    }}
    return mine;
}}
"""
_COLUMNS = f"""
template <int LANES, class Found> __device__ inline Found together(Found mine) {{
    if constexpr (LANES == 1) return mine;
    __shared__ Found shared[{THREADS}];
    __syncthreads();
    shared[threadIdx.x] = mine;
    for (int half = LANES / 2; half > 0; half /= 2) {{
        __syncthreads();
        const int from = threadIdx.x + half * ({THREADS} / LANES);
        if (from < half * 2 * ({THREADS} / LANES)) shared[threadIdx.x] = joined(shared[threadIdx.x], shared[from]);
    }}
    __syncthreads();
    return shared[threadIdx.x % ({THREADS} / LANES)];
}}
"""
