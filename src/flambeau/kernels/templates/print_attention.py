"""Attention as loops over blocks that fit the cache, printed as C. The idea is FlashAttention's (Dao et al., 2022), turned by 90 degrees.

A block has 64 queries, which lie beside each other in vectors: scores are held as Sᵀ (keys, queries). So Sᵀ = K Qᵀ and Oᵀ = Vᵀ Pᵀ read K
and V where they lie, only the small Q and O are turned, and the maximum and the sum over keys are vectors that go down the rows.

    forward    for blocks of keys:  Sᵀ = K Qᵀ,  m' = max(m, Sᵀ),  Pᵀ = exp(Sᵀ - m'),  l = l exp(m - m') + sum Pᵀ,  Oᵀ = Oᵀ exp(m - m') + Vᵀ Pᵀ
               at last              O = Oᵀ / l,  lse = m + log l, inf where all keys are masked
    backward   for blocks of both:  Pᵀ = exp(K Qᵀ - lse),  dSᵀ = Pᵀ (V dOᵀ - sum(dO O)),  dV += Pᵀ dO,  dK += dSᵀ Q,  dQᵀ += Kᵀ dSᵀ

To the launcher an element is a block of queries (forward), or all of one head (backward, where dK and dV gather from all queries: one
thread adds them up in order). `facts` are sizes, and elements from row to row; see attention.py.
"""

from __future__ import annotations

from flambeau.kernels.language.print_table import LINES, PARAMETERS, Table
from flambeau.kernels.templates import print_products
from flambeau.kernels.templates.attention import BACKWARD, FACTS, FORWARD

KEYS = 128  # keys to a block


def table() -> Table:
    loops = Table(*print_products.texts(), _EXP)
    for kind, (real, _, wide) in print_products.REALS.items():
        sizes = {"kind": kind, "real": real, "wide": wide, "half": wide // 2, "block": KEYS, "whole": wide // 4, "far": 8 * wide}
        passes = {name: _PASS.replace("{body}", text).format(**sizes) for name, text in _PASSES.items()}
        loops.texts.append(_PRODUCTS.format(integer="int32_t" if kind == "f32" else "int64_t", **sizes))
        for name, operands, body in (("forward", FORWARD, _FORWARD), ("backward", BACKWARD, _BACKWARD)):
            inner = body.format(**sizes, **passes)
            loops.texts.append(f"void FL_NAME(attention_{name}_{kind}){PARAMETERS} {{\n{_each(real, operands)}{inner}}}\n}}\n")
            loops.add(f"attention.{name}", f"attention_{name}_{kind}", kind, "T " * (len(operands) - 2) + "i64", 2, LINES)
    return loops


def _each(real: str, operands: tuple[str, ...]) -> str:
    """For each element: its operands and its facts, by name."""
    lines = [f"const {real} scale = ({real})param[1];", "for (int64_t element = 0; element < n; element++) {"]
    lines += [f"    {real} *const {o} = ({real} *)(ptr[{i}] + element * step[{i}]);" for i, o in enumerate(operands[:-1])]
    lines.append(f"    const int64_t *const facts = (const int64_t *)(ptr[{len(operands) - 1}] + element * step[{len(operands) - 1}]);")
    lines += [f"    const int64_t {name} = facts[{i}]; (void){name};" for i, name in enumerate(FACTS)]
    return "".join(f"    {line}\n" for line in lines)


# e^x where x is at most about 0: nothing can overflow, and what is too small for a normal number is 0 beside the 1 of the greatest score.
_EXP = """
static inline float fl_exp_down_f32(float x) {
    const float t = x * 1.442695f + 12582912.0f, n = t - 12582912.0f; /* 1.5 * 2^23: n is rounded, and stands in the last bits of t */
    const float r = fl_fma_f32(n, 0.00021219444f, fl_fma_f32(n, -0.6933594f, x));
    const float p = ((((0.0013921546f * r + 0.008367026f) * r + 0.0416666f) * r + 0.16666539f) * r + 0.5f) * r;
    const float y = ((p + 1.0f) * r + 1.0f) * fl_from_bits_u32((fl_bits_f32(t) << 23) + 0x3f800000u);
    return x < -87.0f ? 0.0f : y;
}
#define fl_exp_down_f64 fl_exp_f64
"""

# Products over a block of keys and queries, from (keys, features), (features, queries) or (keys, queries). Where later keys are hidden from
# earlier queries, the keys from number `split` on are hidden from the first half of the queries: that corner is neither made nor read. Of few
# queries there is only the first half: `upto`.
_PRODUCTS = """
static void scored_{kind}(int64_t some, int64_t split, int64_t upto, int64_t depth, const {real} *k, int64_t ldk, const {real} *qt, {real} *s) {{
    fl_product_{kind}(split, upto, depth, k, ldk, 1, qt, {wide}, 0, s, PITCH({wide}));
    fl_product_{kind}(some - split, {half}, depth, k + split * ldk, ldk, 1, qt + {half}, {wide}, 0, s + split * PITCH({wide}) + {half}, PITCH({wide}));
}}
static void gathered_{kind}(int64_t some, int64_t split, int64_t upto, int64_t n, const {real} *v, int64_t ldv, const {real} *p, int add, {real} *ot) {{
    FL_ALIGNED {real} near[{block} * PITCH({wide})]; /* every tile goes down the rows of V: if they lie far apart, they drive each other out of the cache */
    if (ldv > APART({far}) && n <= {wide}) {{
        for (int64_t r = 0; r < some; r++) FL_IVDEP for (int64_t d = 0; d < n; d++) near[r * PITCH({wide}) + d] = v[r * ldv + d];
        v = near, ldv = PITCH({wide});
    }}
    fl_product_{kind}(n, split < some ? {half} : upto, split, v, 1, ldv, p, PITCH({wide}), add, ot, {wide});
    if (split < some) fl_product_{kind}(n, {half}, some, v, 1, ldv, p + {half}, PITCH({wide}), add, ot + {half}, {wide});
}}
static void spread_{kind}(int64_t some, int64_t split, int64_t lanes, int64_t n, const {real} *p, const {real} *g, int64_t ldg, int add, {real} *dv,
    int64_t ld) {{
    fl_product_{kind}(split, n, lanes, p, PITCH({wide}), 1, g, ldg, add, dv, ld);
    fl_product_{kind}(some - split, n, lanes - {half}, p + split * PITCH({wide}) + {half}, PITCH({wide}), 1, g + {half} * ldg, ldg, add, dv + split * ld, ld);
}}
/* Sᵀ, with what the mask adds; `first` and `start` are the numbers of the first key and query. */
static void scores_{kind}(int64_t some, int64_t split, int64_t upto, int64_t e, const {real} *k, int64_t ldk, const {real} *qt, const {real} *mask,
    int64_t across, int64_t down, int64_t lanes, int causal, int64_t first, int64_t start, {real} *s) {{
    scored_{kind}(some, split, upto, e, k, ldk, qt, s);
    for (int64_t r = 0; mask && r < some; r++)
        if (across == 1) FL_IVDEP for (int64_t l = 0; l < lanes; l++) s[r * PITCH({wide}) + l] += mask[(first + r) * down + l];
        else FL_IVDEP for (int64_t l = 0; l < lanes; l++) s[r * PITCH({wide}) + l] += mask[(first + r) * down];
    for (int64_t r = causal && start >= first ? start - first + 1 : 0; causal && r < some; r++) {{
        {real} *const at = s + r * PITCH({wide}) + (r < split ? 0 : {half});
        const {integer} hidden = ({integer})(first + r - start - (r < split ? 0 : {half}));
        FL_COUNTED for ({integer} l = 0; l < {half}; l++) at[l] = l < hidden ? -({real})INFINITY : at[l];
    }}
}}
/* Rows of what comes next: they are short and lie apart, which takes the CPU's own prefetcher by surprise. */
static void called_{kind}(int64_t rows, int64_t n, const {real} *from, int64_t ld) {{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < n; d += {whole}) __builtin_prefetch(from + r * ld + d);
}}
/* Rows turned into vectors of {wide} lanes, those that are not there 0; and all times a number. */
static void turned_{kind}(int64_t lanes, int64_t n, const {real} *from, int64_t ld, {real} factor, {real} *to) {{
    if (lanes < {wide}) memset(to, 0, sizeof({real}) * {wide} * (size_t)n);
    fl_turn(sizeof({real}), lanes, n, (const char *)from, ld, (char *)to, {wide});
    if (factor != 1) FL_IVDEP for (int64_t i = 0; i < n * {wide}; i++) to[i] *= factor;
}}
"""

# What is done to all of a block that is made: first to the rows that are whole, then to what is there of the others.
_PASS = """
            if (upto == {wide}) for (int64_t r = 0; r < split; r++) FL_COUNTED for (int l = 0; l < {wide}; l++) {{ {body} }}
            else for (int64_t r = 0; r < split; r++) FL_COUNTED for (int l = 0; l < {half}; l++) {{ {body} }}
            for (int64_t r = split; r < some; r++) FL_COUNTED for (int l = {half}; l < {wide}; l++) {{ {body} }}
"""
_PASSES = {
    "greatest": "now[l] = p[r * PITCH({wide}) + l] > now[l] ? p[r * PITCH({wide}) + l] : now[l];",
    "powers": "const {real} x = fl_exp_down_{kind}(p[r * PITCH({wide}) + l] - base[l]); p[r * PITCH({wide}) + l] = x, sum[l] += x;",
    "slopes": "const {real} x = fl_exp_down_{kind}(p[r * PITCH({wide}) + l] - less[l]), y = ds[r * PITCH({wide}) + l] - delta[l]; p[r * PITCH({wide}) + l] = x, ds[r * PITCH({wide}) + l] = x * scale * y;",
}

_FORWARD = """
        const int64_t lanes = queries - start < {wide} ? queries - start : {wide}, end = causal && start + lanes < keys ? start + lanes : keys;
        const int64_t upto = lanes <= {half} ? {half} : {wide};
        FL_ALIGNED {real} qt[e * {wide}], ot[w * {wide}], p[{block} * PITCH({wide})], most[{wide}], total[{wide}];
        for (int l = 0; l < {wide}; l++) most[l] = -INFINITY, total[l] = 0;
        called_{kind}(end < {block} ? end : {block}, e, k, ldk), called_{kind}(end < {block} ? end : {block}, w, v, ldv);
        turned_{kind}(lanes, e, q, ldq, scale, qt);
        for (int64_t j = 0; j < end; j += {block}) {{
            const int64_t some = end - j < {block} ? end - j : {block}, split = causal && start + {half} - j < some ? start + {half} - j : some;
            FL_ALIGNED {real} now[{wide}], base[{wide}], sum[{wide}] = {{0}};
            scores_{kind}(some, split, upto, e, k + j * ldk, ldk, qt, masked ? mask : 0, across, down, lanes, (int)causal, j, start, p);
            memcpy(now, most, sizeof now);
            {greatest}
            FL_COUNTED for (int l = 0; l < {wide}; l++) {{
                base[l] = now[l] == -INFINITY ? 0 : now[l]; /* all masked so far: exp(-inf - 0) = 0 */
                most[l] = fl_exp_{kind}(most[l] - base[l]); /* for a moment: by how much what was summed before shrinks */
            }}
            {powers}
            for (int64_t d = 0; j > 0 && d < w; d++) FL_IVDEP for (int l = 0; l < upto; l++) ot[d * {wide} + l] *= most[l];
            FL_COUNTED for (int l = 0; l < {wide}; l++) total[l] = total[l] * most[l] + sum[l], most[l] = now[l];
            gathered_{kind}(some, split, upto, w, v + j * ldv, ldv, p, j > 0, ot);
        }}
        FL_COUNTED for (int l = 0; l < {wide}; l++) {{
            most[l] = total[l] == 0 ? INFINITY : most[l] + fl_log_{kind}(total[l]);
            total[l] = total[l] == 0 ? 0 : 1 / total[l];
        }}
        for (int64_t d = 0; d < w; d++) FL_IVDEP for (int l = 0; l < upto; l++) ot[d * {wide} + l] *= total[l];
        fl_turn(sizeof({real}), w, lanes, (const char *)ot, {wide}, (char *)out, ldo);
        memcpy(lse, most, sizeof({real}) * (size_t)lanes);
    """

# Products read rows of Q and dO to the end of a vector: where it lies beyond the row, they are copied; and where rows lie far apart.
_BACKWARD = """
        const int64_t ep = (e + {whole} - 1) / {whole} * {whole}, wp = (w + {whole} - 1) / {whole} * {whole};
        FL_ALIGNED {real} qt[e * {wide}], gt[w * {wide}], qr[ep * {wide}], gr[wp * {wide}], dqt[e * {wide}];
        FL_ALIGNED {real} p[{block} * PITCH({wide})], ds[{block} * PITCH({wide})], less[{wide}], delta[{wide}];
        const bool copy_q = e < ep || ldq > {far}, copy_g = w < wp || ldg > {far};
        const int64_t upto = {wide};
        for (int64_t i = 0; i < queries; i += {wide}) {{
            const int64_t lanes = queries - i < {wide} ? queries - i : {wide}, end = causal && i + lanes < keys ? i + lanes : keys;
            const {real} *const here = copy_q ? qr : q + i * ldq, *const from = copy_g ? gr : g + i * ldg;
            for (int64_t j = end; i == 0 && j < keys; j++) {{
                memset(dk + j * lddk, 0, sizeof({real}) * (size_t)e);
                memset(dv + j * lddv, 0, sizeof({real}) * (size_t)w);
            }}
            if (i == 0) called_{kind}(end < {block} ? end : {block}, e, k, ldk), called_{kind}(end < {block} ? end : {block}, w, v, ldv);
            called_{kind}(lanes, w, g + i * ldg, ldg), called_{kind}(lanes, w, out + i * ldo, ldo);
            turned_{kind}(lanes, e, q + i * ldq, ldq, scale, qt);
            turned_{kind}(lanes, w, g + i * ldg, ldg, 1, gt);
            for (int64_t l = 0; l < lanes; l++) {{
                if (copy_q) memcpy(memset(qr + l * ep, 0, sizeof({real}) * (size_t)ep), q + (i + l) * ldq, sizeof({real}) * (size_t)e);
                if (copy_g) memcpy(memset(gr + l * wp, 0, sizeof({real}) * (size_t)wp), g + (i + l) * ldg, sizeof({real}) * (size_t)w);
            }}
            for (int64_t l = 0; l < {wide}; l++) {{
                const {real} *const y = g + (i + l) * ldg, *const o = out + (i + l) * ldo;
                {real} sum = 0;
#pragma omp simd reduction(+ : sum)
                for (int64_t d = 0; d < (l < lanes ? w : 0); d++) sum += y[d] * o[d];
                less[l] = l < lanes ? lse[i + l] : INFINITY, delta[l] = sum;
            }}
            for (int64_t j = 0; j < end; j += {block}) {{
                const int64_t some = end - j < {block} ? end - j : {block}, split = causal && i + {half} - j < some ? i + {half} - j : some;
                scores_{kind}(some, split, upto, e, k + j * ldk, ldk, qt, masked ? mask + i * across : 0, across, down, lanes, (int)causal, j, i, p);
                scored_{kind}(some, split, upto, w, v + j * ldv, ldv, gt, ds);
                {slopes}
                spread_{kind}(some, split, lanes, w, p, from, copy_g ? wp : ldg, i > 0, dv + j * lddv, lddv);
                spread_{kind}(some, split, lanes, e, ds, here, copy_q ? ep : ldq, i > 0, dk + j * lddk, lddk);
                gathered_{kind}(some, split, upto, e, k + j * ldk, ldk, ds, j > 0, dqt);
            }}
            fl_turn(sizeof({real}), e, lanes, (const char *)dqt, {wide}, (char *)(dq + i * lddq), lddq);
        }}
    """
