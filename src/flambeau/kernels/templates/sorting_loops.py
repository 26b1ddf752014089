"""Sorting and selecting in C, on keys: unsigned integers in the order of the elements, made from their bits.

    sort   least significant digit first, a pass for each, which keeps equal elements in order. In a short line: an element goes to the place
           that is as far from the first as there are smaller ones, equal ones one after another
    topk   a small sorted buffer of the best so far; whole blocks in which nothing beats its last are passed over. For large k: sort.
    mode   the longest run of equal elements in the sorted line
    kth    most significant digit first: count the digits of the keys that are left, keep those with the digit that holds the kth.
           In a short line: the element that has as many smaller ones as there are places before it

-0 has the key of 0, and every NaN the greatest key. A key with all bits flipped sorts from the greatest down, equals still in order.
"""

from __future__ import annotations

from flambeau.kernels.language.dtype_table import DTYPES
from flambeau.kernels.language.print_c import FLOATS, TYPES
from flambeau.kernels.language.print_table import ROWS, Table, of
from flambeau.kernels.reductions.fold import ALL
from flambeau.kernels.templates.scan_loops import GEOMETRY

BYTES = 1 << 15  # of memory that a loop has without asking: enough for 16 columns of 64 elements
SHORT = 64  # a line of up to so many elements is compared with itself
RANKED = 128  # a line of up to so many elements is sorted by counting smaller ones, 8 or 16 at a time
FEW = 64  # up to so many results are kept sorted by insertion
INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}
BITS = {name: 8 * size for name, size, _, _ in DTYPES.values()}
LOOPS = ("sort", "topk", "kth", "mode")


def table() -> Table:
    loops = Table(PRELUDE, _radix("narrow", "uint64_t", "a[i]"), _radix("wide", "pair", "a[i].key"))
    for dtype in ALL:
        loops.texts.append(_loops(dtype))
        for name in LOOPS:
            loops.add(f"lines.{name}", f"lines_{name}_{TYPES[dtype][0]}", dtype, "T i64", 4, ROWS)
    return loops


PRELUDE = """
#include <string.h>
#include "system.h"
typedef struct { uint64_t key, place; } pair; /* a key of up to 32 bits shares a word with its place instead */
"""


def _radix(name: str, item: str, key: str) -> str:
    """Sort items by their keys from bit `low` on, none above `most`. Returns where the result is: in a or in b."""
    return f"""
static {item} *radix_{name}({item} *a, {item} *b, int64_t n, int low, uint64_t most) {{
    const int bits = n < 1 << 14 ? 8 : 11; /* of a digit: a long line pays for the larger table */
    uint32_t count[2048], mask = (1u << bits) - 1;
    for (int shift = low; shift < 64 && most >> (shift - low); shift += bits) {{
        memset(count, 0, sizeof *count << bits);
        for (int64_t i = 0; i < n; i++) count[{key} >> shift & mask]++;
        for (uint32_t d = 0, sum = 0, next; d <= mask; d++, sum = next) next = sum + count[d], count[d] = sum;
        for (int64_t i = 0; i < n; i++) b[count[{key} >> shift & mask]++] = a[i];
        {item} *const done = b;
        b = a, a = done;
    }}
    return a;
}}
"""


def _key(dtype: str, u: str) -> str:
    """The C of `key(x)`: from the bits of an element."""
    bits = BITS[dtype]
    sign = f"({u})1 << {bits - 1}"
    if dtype in FLOATS:
        return f"""    const {u} sign = {sign}, size = x & ({u})~sign, ordered = x & sign ? ({u})~x : x | sign;
    return size > ({u}){INFINITY[dtype]}u ? ({u})~({u})0 : size ? ordered : sign;"""
    return "    return x;" if dtype in ("uint8", "bool") else f"    return ({u})(x ^ {sign});"


def _loops(dtype: str) -> str:
    s, bits = TYPES[dtype][0], BITS[dtype]
    u = f"uint{bits}_t"
    return f"""
static inline {u} key_{s}({u} x) {{
{_key(dtype, u)}
}}
{_sort_line(s, u, bits)}
{_topk_line(s, u)}
{_kth_line(s, u, bits)}
{_mode_line(s, u, bits)}
{"".join(_loop(name, s, u, bits) for name in LOOPS)}"""


def _sort_line(s: str, u: str, bits: int) -> str:
    """Keys are counted from the smallest of the line: where all are near each other, as integers often are, fewer digits matter."""
    narrow = _items(s, u, "narrow", "uint64_t", "(uint64_t)key << 32 | (uint64_t)i", "(a[i] & 0xffffffffu)", 32)
    wide = _items(s, u, "wide", "pair", "(pair){key, (uint64_t)i}", "a[i].place", 0)
    return f"""
static void sort_line_{s}(const {u} *x, {u} *y, int64_t *at, int64_t n, int64_t k, int64_t down, void *memory) {{
    const {u} flip = down ? ({u})~({u})0 : 0;
    {u} least = ({u})~({u})0, most = 0;
    _Pragma("omp simd reduction(min:least) reduction(max:most)")
    for (int64_t i = 0; i < n; i++) {{
        const {u} key = key_{s}(x[i]) ^ flip;
        least = key < least ? key : least, most = key > most ? key : most;
    }}
    most -= least;
{f"    if (most >> 32) {{{wide}    return; }}" if bits == 64 else ""}
{narrow}}}"""


def _ranked(s: str, u: str, word: str) -> str:
    """A short line; `word` is a signed type of the size of its keys, because signed numbers are compared faster."""
    return f"""    if (n <= {RANKED}) {{
        {word} word[{RANKED}], smaller[{RANKED}] = {{0}};
        uint8_t equal[{RANKED}] = {{0}};
        const int64_t whole = (n + 15) & -16;
        for (int64_t i = 0; i < whole; i++) {{
            const {u} key = i < n ? (key_{s}(x[i]) ^ flip) - least : 0;
            word[i] = ({word})((u{word})key ^ (u{word})1 << (8 * sizeof({word}) - 1));
        }}
        for (int64_t j = 0; j < n; j++) {{
            const {word} now = word[j];
            FL_IVDEP for (int64_t i = 0; i < whole; i++) smaller[i] += now < word[i];
        }}
        for (int64_t i = 0; i < n; i++) {{
            const int64_t to = smaller[i] + equal[smaller[i]]++;
            if (to < k) at[to] = i, y[to] = x[i];
        }}
        return;
    }}
"""


def _items(s: str, u: str, name: str, item: str, make: str, place: str, low: int) -> str:
    return f"""{_ranked(s, u, "int64_t" if name == "wide" else "int32_t")}    {item} *a = memory;
    for (int64_t i = 0; i < n; i++) {{
        const {u} key = (key_{s}(x[i]) ^ flip) - least;
        a[i] = {make};
    }}
    a = radix_{name}(a, a + n, n, {low}, most);
    for (int64_t i = 0; i < k; i++) at[i] = (int64_t){place}, y[i] = x[at[i]];
"""


def _topk_line(s: str, u: str) -> str:
    return f"""
static void topk_line_{s}(const {u} *x, {u} *y, int64_t *at, int64_t n, int64_t k, int64_t down, void *memory) {{
    if (k > {FEW} || (n <= {RANKED} && 4 * k >= n)) {{ sort_line_{s}(x, y, at, n, k, down, memory); return; }}
    const {u} flip = down ? ({u})~({u})0 : 0;
    {u} best[{FEW}]; /* keys from the smallest up */
    int64_t held = 0;
    for (int64_t from = 0; from < n; from += 64) {{
        const int64_t end = from + 64 < n ? from + 64 : n;
        int any = held < k;
        if (!any) {{
            const {u} last = best[k - 1];
            for (int64_t i = from; i < end; i++) any |= ({u})(key_{s}(x[i]) ^ flip) < last;
        }}
        for (int64_t i = from, j; any && i < end; i++) {{
            const {u} now = key_{s}(x[i]) ^ flip;
            if (held == k && now >= best[k - 1]) continue;
            for (j = held < k ? held++ : k - 1; j > 0 && best[j - 1] > now; j--) best[j] = best[j - 1], at[j] = at[j - 1];
            best[j] = now, at[j] = i;
        }}
    }}
    for (int64_t i = 0; i < k; i++) y[i] = x[at[i]];
}}"""


def _kth_line(s: str, u: str, bits: int) -> str:
    is_nan = f"key_{s}(x[i]) == ({u})~({u})0" if "f" in s else "0"
    return f"""
/* kth: the place to find. -1: the middle, or NaN if there is one; -2: the middle of what is not NaN. */
static void kth_line_{s}(const {u} *x, {u} *y, int64_t *at, int64_t n, int64_t k, int64_t kth, void *memory) {{
    {u} key = 0, *const left = memory; /* the keys that match so far */
    int64_t nans = 0, many = n, rest = kth, i = 0;
    for (; kth < 0 && i < n; i++) nans += {is_nan};
    if (kth == -1) rest = nans ? n - 1 : (n - 1) / 2;
    if (kth == -2) rest = nans < n ? (n - nans - 1) / 2 : 0;
    for (i = 0; i < n; i++) left[i] = key_{s}(x[i]);
    for (i = 0; n <= {SHORT} && i < n; i++) {{ /* how many are smaller says it sooner */
        {u} smaller = 0, equal = 0;
        for (int64_t j = 0; j < n; j++) smaller += left[j] < left[i], equal += left[j] == left[i];
        if (rest < (int64_t)smaller || rest >= (int64_t)smaller + (int64_t)equal) continue;
        *y = x[i], *at = i;
        return;
    }}
    for (int shift = {bits - 8}; shift >= 0; shift -= 8) {{
        int64_t count[256] = {{0}}, digit = 0, some = 0;
        for (i = 0; i < many; i++) count[left[i] >> shift & 255]++;
        while (rest >= count[digit]) rest -= count[digit++];
        for (i = 0; i < many; i++) {{
            const {u} now = left[i];
            left[some] = now, some += (int64_t)(now >> shift & 255) == digit;
        }}
        key |= ({u})(({u})digit << shift), many = some;
    }}
    for (i = 0; key_{s}(x[i]) != key;) i++;
    *y = x[i], *at = i, (void)k;
}}"""


def _item_bytes(bits: int) -> int:
    """What sorting takes for each element: two items."""
    return 32 if bits == 64 else 16


def _mode_line(s: str, u: str, bits: int) -> str:
    """The last of the most frequent elements; of the smallest, if several are. A NaN is equal to nothing."""
    nan = f" && key_{s}(sorted[i]) != ({u})~({u})0" if "f" in s else ""
    return f"""
static void mode_line_{s}(const {u} *x, {u} *y, int64_t *at, int64_t n, int64_t k, int64_t option, void *memory) {{
    int64_t *const places = (int64_t *)((char *)memory + {_item_bytes(bits)} * n), run = 0, most = 0;
    {u} *const sorted = ({u} *)(places + n);
    sort_line_{s}(x, sorted, places, n, n, 0, memory);
    for (int64_t i = 0; i < n; i++) {{
        run = i && key_{s}(sorted[i]) == key_{s}(sorted[i - 1]){nan} ? run + 1 : 1;
        if (run > most) most = run, *at = places[i];
    }}
    *y = x[*at], (void)k, (void)option;
}}"""


def _loop(name: str, s: str, u: str, bits: int) -> str:
    """Lines that are rows as they stand; columns copied, SIDE at a time, into rows and back."""
    items = _item_bytes(bits)
    scratch = {
        "mode": f"({items + 8 + bits // 8} * n + 7) & -8",
        "sort": f"{items} * n",
        "topk": f"k > {FEW} || n <= {RANKED} ? {items} * n : 0",
        "kth": f"({bits // 8} * n + 7) & -8",
    }[name]
    return f"""
void FL_NAME(lines_{name}_{s}){of("total")} {{
{GEOMETRY}    const {u} *x = (const {u} *)ptr[0];
    {u} *y = ({u} *)ptr[1];
    int64_t *at = (int64_t *)ptr[2];
    const int64_t option = (int64_t)param[3], items = {scratch};
    const int64_t size = items + (inner > 1 ? width * (8 * k + (n + k) * (int64_t)sizeof *x) : 0);
    _Alignas(16) char few[{BYTES}];
    char *const memory = size <= {BYTES} ? few : fl_alloc((size_t)size);
    if (!memory) {{ /* the caller looks for it */
        for (int64_t c = 0; c < (inner > 1 ? width : 1); c++) at[c] = -1;
        return;
    }}
    if (inner == 1) {name}_line_{s}(x, y, at, n, k, option, memory);
    else {{
        int64_t *const places = (int64_t *)(memory + items);
        {u} *const from = ({u} *)(places + width * k), *const to = from + width * n;
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < width; c++) from[c * n + i] = x[i * inner + c];
        for (int64_t c = 0; c < width; c++) {name}_line_{s}(from + c * n, to + c * k, places + c * k, n, k, option, memory);
        for (int64_t i = 0; i < k; i++)
            for (int64_t c = 0; c < width; c++) y[i * inner + c] = to[c * k + i], at[i * inner + c] = places[c * k + i];
    }}
    if (memory != few) fl_free(memory, (size_t)size);
}}
"""
