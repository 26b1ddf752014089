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

from flambeau.kernels import print_products
from flambeau.kernels.attention import BACKWARD, FACTS, FORWARD
from flambeau.kernels.index_loops import LINES, PARAMETERS

KEYS = 128  # keys to a block


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table)."""
    texts, declarations, rows = print_products.texts(), [], []
    for kind, (real, _, wide) in print_products.REALS.items():
        texts.append(_SCORES.format(kind=kind, real=real, wide=wide))
        for name, operands, body in (("forward", FORWARD, _FORWARD), ("backward", BACKWARD, _BACKWARD)):
            function = f"FL_NAME(attention_{name}_{kind})"
            inner = body.format(kind=kind, real=real, wide=wide, block=KEYS, whole=64 // (8 if kind == "f64" else 4))
            texts.append(f"void {function}{PARAMETERS} {{\n{_each(real, operands)}{inner}}}\n}}\n")
            declarations.append(f"void {function}{PARAMETERS};\n")
            enum = f"FL_{kind.upper()}"
            n = len(operands) - 1
            inputs = ", ".join([enum] * (n - 1) + ["FL_I64"])
            rows.append(f'{{"attention.{name}", {function}, {enum}, {n}, 2, 1, {enum}, {{{inputs}}}, {LINES}}}')
    return texts, declarations, rows


def _each(real: str, operands: tuple[str, ...]) -> str:
    """For each element: its operands and its facts, by name."""
    lines = [f"const {real} scale = ({real})param[1];", "for (int64_t element = 0; element < n; element++) {"]
    lines += [f"    {real} *const {o} = ({real} *)(ptr[{i}] + element * step[{i}]);" for i, o in enumerate(operands[:-1])]
    lines.append(f"    const int64_t *const facts = (const int64_t *)(ptr[{len(operands) - 1}] + element * step[{len(operands) - 1}]);")
    lines += [f"    const int64_t {name} = facts[{i}]; (void){name};" for i, name in enumerate(FACTS)]
    return "".join(f"    {line}\n" for line in lines)


# Sᵀ of some keys, with what the mask adds; `first` and `start` are the numbers of the first key and query.
_SCORES = """
static void scores_{kind}(int64_t some, int64_t e, const {real} *k, int64_t ldk, const {real} *qt, const {real} *mask, int64_t across,
    int64_t down, int64_t lanes, int causal, int64_t first, int64_t start, {real} *s) {{
    fl_product_{kind}(some, {wide}, e, k, ldk, 1, qt, {wide}, 0, s, {wide});
    for (int64_t r = 0; mask && r < some; r++)
        if (across == 1) FL_IVDEP for (int64_t l = 0; l < lanes; l++) s[r * {wide} + l] += mask[(first + r) * down + l];
        else FL_IVDEP for (int64_t l = 0; l < lanes; l++) s[r * {wide} + l] += mask[(first + r) * down];
    for (int64_t r = 0; causal && r < some; r++)
        for (int64_t l = 0; l < first + r - start && l < {wide}; l++) s[r * {wide} + l] = -INFINITY;
}}
/* Rows turned into vectors of {wide} lanes, those that are not there 0; and all times a number. */
static void turned_{kind}(int64_t lanes, int64_t n, const {real} *from, int64_t ld, {real} factor, {real} *to) {{
    if (lanes < {wide}) memset(to, 0, sizeof({real}) * {wide} * (size_t)n);
    fl_turn(sizeof({real}), lanes, n, (const char *)from, ld, (char *)to, {wide});
    if (factor != 1) FL_IVDEP for (int64_t i = 0; i < n * {wide}; i++) to[i] *= factor;
}}
"""

_FORWARD = """
        const int64_t lanes = queries - start < {wide} ? queries - start : {wide}, end = causal && start + lanes < keys ? start + lanes : keys;
        FL_ALIGNED {real} qt[e * {wide}], ot[w * {wide}], p[{block} * {wide}], most[{wide}], total[{wide}];
        for (int l = 0; l < {wide}; l++) most[l] = -INFINITY, total[l] = 0;
        turned_{kind}(lanes, e, q, ldq, scale, qt);
        for (int64_t j = 0; j < end; j += {block}) {{
            const int64_t some = end - j < {block} ? end - j : {block};
            FL_ALIGNED {real} now[{wide}], base[{wide}], sum[{wide}] = {{0}};
            scores_{kind}(some, e, k + j * ldk, ldk, qt, masked ? mask : 0, across, down, lanes, (int)causal, j, start, p);
            memcpy(now, most, sizeof now);
            for (int64_t r = 0; r < some; r++) FL_IVDEP for (int l = 0; l < {wide}; l++) now[l] = p[r * {wide} + l] > now[l] ? p[r * {wide} + l] : now[l];
            FL_IVDEP for (int l = 0; l < {wide}; l++) {{
                base[l] = now[l] == -INFINITY ? 0 : now[l]; /* all masked so far: exp(-inf - 0) = 0 */
                most[l] = fl_exp_{kind}(most[l] - base[l]); /* for a moment: by how much what was summed before shrinks */
            }}
            for (int64_t r = 0; r < some; r++) FL_IVDEP for (int l = 0; l < {wide}; l++) {{
                const {real} x = fl_exp_{kind}(p[r * {wide} + l] - base[l]);
                p[r * {wide} + l] = x, sum[l] += x;
            }}
            for (int64_t d = 0; j > 0 && d < w; d++) FL_IVDEP for (int l = 0; l < {wide}; l++) ot[d * {wide} + l] *= most[l];
            FL_IVDEP for (int l = 0; l < {wide}; l++) total[l] = total[l] * most[l] + sum[l], most[l] = now[l];
            fl_product_{kind}(w, {wide}, some, v + j * ldv, 1, ldv, p, {wide}, j > 0, ot, {wide});
        }}
        FL_IVDEP for (int l = 0; l < {wide}; l++) {{
            most[l] = total[l] == 0 ? INFINITY : most[l] + fl_log_{kind}(total[l]);
            total[l] = total[l] == 0 ? 0 : 1 / total[l];
        }}
        for (int64_t d = 0; d < w; d++) FL_IVDEP for (int l = 0; l < {wide}; l++) ot[d * {wide} + l] *= total[l];
        fl_turn(sizeof({real}), w, lanes, (const char *)ot, {wide}, (char *)out, ldo);
        memcpy(lse, most, sizeof({real}) * (size_t)lanes);
    """

_BACKWARD = """
        const int64_t ep = (e + {whole} - 1) / {whole} * {whole}, wp = (w + {whole} - 1) / {whole} * {whole};
        FL_ALIGNED {real} qt[e * {wide}], gt[w * {wide}], qr[ep * {wide}], gr[wp * {wide}], dqt[e * {wide}];
        FL_ALIGNED {real} p[{block} * {wide}], ds[{block} * {wide}], less[{wide}], delta[{wide}];
        for (int64_t j = 0; j < keys; j++) {{
            memset(dk + j * lddk, 0, sizeof({real}) * (size_t)e);
            memset(dv + j * lddv, 0, sizeof({real}) * (size_t)w);
        }}
        memset(qr, 0, sizeof qr), memset(gr, 0, sizeof gr);
        for (int64_t i = 0; i < queries; i += {wide}) {{
            const int64_t lanes = queries - i < {wide} ? queries - i : {wide}, end = causal && i + lanes < keys ? i + lanes : keys;
            turned_{kind}(lanes, e, q + i * ldq, ldq, scale, qt);
            turned_{kind}(lanes, w, g + i * ldg, ldg, 1, gt);
            for (int64_t l = 0; l < {wide}; l++) {{
                less[l] = l < lanes ? lse[i + l] : INFINITY, delta[l] = 0;
                if (l >= lanes) memset(qr + l * ep, 0, sizeof({real}) * (size_t)e), memset(gr + l * wp, 0, sizeof({real}) * (size_t)w);
                const {real} *const x = q + (i + l) * ldq, *const y = g + (i + l) * ldg, *const o = out + (i + l) * ldo;
                for (int64_t d = 0; l < lanes && d < e; d++) qr[l * ep + d] = x[d] * scale;
                {real} sum = 0;
#pragma omp simd reduction(+ : sum)
                for (int64_t d = 0; d < (l < lanes ? w : 0); d++) gr[l * wp + d] = y[d], sum += y[d] * o[d];
                delta[l] = sum;
            }}
            for (int64_t j = 0; j < end; j += {block}) {{
                const int64_t some = end - j < {block} ? end - j : {block};
                scores_{kind}(some, e, k + j * ldk, ldk, qt, masked ? mask + i * across : 0, across, down, lanes, (int)causal, j, i, p);
                fl_product_{kind}(some, {wide}, w, v + j * ldv, ldv, 1, gt, {wide}, 0, ds, {wide});
                for (int64_t r = 0; r < some; r++) FL_IVDEP for (int l = 0; l < {wide}; l++) {{
                    const {real} x = fl_exp_{kind}(p[r * {wide} + l] - less[l]);
                    p[r * {wide} + l] = x, ds[r * {wide} + l] = x * (ds[r * {wide} + l] - delta[l]);
                }}
                fl_product_{kind}(some, w, {wide}, p, {wide}, 1, gr, wp, 1, dv + j * lddv, lddv);
                fl_product_{kind}(some, e, {wide}, ds, {wide}, 1, qr, ep, 1, dk + j * lddk, lddk);
                fl_product_{kind}(e, {wide}, some, k + j * ldk, 1, ldk, ds, {wide}, j > 0, dqt, {wide});
            }}
            FL_IVDEP for (int64_t d = 0; d < e * {wide}; d++) dqt[d] *= scale;
            fl_turn(sizeof({real}), e, lanes, (const char *)dqt, {wide}, (char *)(dq + i * lddq), lddq);
        }}
    """
