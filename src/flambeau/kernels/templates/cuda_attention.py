"""Attention on a GPU, printed as CUDA C++ for one head size: blocks of queries against blocks of keys, in shared memory.

A block of 16 x 16 threads has a tile of queries (or keys, in `keys`) to itself and walks over the others, a tile at a time. A thread owns some
rows and, of each, every 16th column: of the scores, then of what they are multiplied with. A row lies in 16 neighbouring threads, which add
and compare by shuffling. Rows in shared memory are 4 elements longer than they need be, so that 8 threads that read 16 bytes of 8 rows meet
in no bank.

    forward   out, lse     for each tile of queries: the maximum and the sum of a row so far, and its result so far, rescaled as the maximum grows
    queries   dq, delta    for each tile of queries; delta is the sum of grad * out of a row
    keys      dk, dv       for each tile of keys

Nothing is added atomically: the same bits every time.
"""

from __future__ import annotations

SIDE = 16  # threads are SIDE x SIDE
LONGER = 4  # elements between rows in shared memory

_HEAD = """
typedef {real} R;
typedef long long Int;
struct __align__({align}) Four {{ R x, y, z, w; }};
constexpr int E = {e}, V = {v}, TILE = {tile}, EP = {ep}, VP = {vp}, ROWS = TILE / 16, LD = TILE + 4;
constexpr int EC = (EP - 4 + 15) / 16, VC = (VP - 4 + 15) / 16; /* columns of a thread, of rows that long */
constexpr bool CAUSAL = {causal}, MASKED = {masked};
#define NONE (-{infinity})

/* Steps in an array along three leading dimensions, rows and columns; the mask repeats where one is 0. */
struct Steps {{ Int a, b, c, row, column; }};
struct Sizes {{ Int b, c, queries, keys, tiles; }};
static __device__ __forceinline__ Int start(Steps s, Sizes n, Int head) {{ return head / (n.b * n.c) * s.a + head / n.c % n.b * s.b + head % n.c * s.c; }}

static __device__ __forceinline__ R row_max(R x) {{
    for (int d = 8; d; d >>= 1) {{ const R y = __shfl_xor_sync(~0u, x, d); x = x > y ? x : y; }}
    return x;
}}
static __device__ __forceinline__ R row_sum(R x) {{
    for (int d = 8; d; d >>= 1) x += __shfl_xor_sync(~0u, x, d);
    return x;
}}
/* Rows from `first` on, `count` of them there at all, into shared memory; zeros for the rest and behind the last column. */
template <int N, int LDN> static __device__ __forceinline__ void fetch(R *to, const R *from, Int step, Int first, Int count) {{
    for (int i = threadIdx.x; i < TILE * (LDN - 4); i += 256) {{
        const int r = i / (LDN - 4), c = i % (LDN - 4);
        to[r * LDN + c] = first + r < count && c < N ? from[(first + r) * step + c] : R(0);
    }}
}}
/* out[i][j] += the product of row (mine + i) of a with row (its + 16 j) of b */
template <int LDN> static __device__ __forceinline__ void rows_by_rows(R out[ROWS][ROWS], const R *a, const R *b, int mine, int its) {{
    #pragma unroll 4
    for (int e = 0; e < LDN - 4; e += 4) {{
        Four x[ROWS], y[ROWS];
        #pragma unroll
        for (int i = 0; i < ROWS; i++) x[i] = *(const Four *)(a + (mine + i) * LDN + e), y[i] = *(const Four *)(b + (its + 16 * i) * LDN + e);
        #pragma unroll
        for (int i = 0; i < ROWS; i++)
            #pragma unroll
            for (int j = 0; j < ROWS; j++) out[i][j] += x[i].x * y[j].x + x[i].y * y[j].y + x[i].z * y[j].z + x[i].w * y[j].w;
    }}
}}
/* out[i][j] += the sum over k of a[mine + i][k] b[k][its + 16 j]; TURNED: of a[k][mine + i] */
template <int C, int LDN, bool TURNED> static __device__ __forceinline__ void rows_by_columns(R out[ROWS][C], const R *a, const R *b, int mine, int its) {{
    #pragma unroll 4
    for (int k = 0; k < TILE; k++) {{
        R x[ROWS];
        #pragma unroll
        for (int i = 0; i < ROWS; i++) x[i] = TURNED ? a[k * LD + mine + i] : a[(mine + i) * LD + k];
        #pragma unroll
        for (int j = 0; j < C; j++) {{
            const R y = its + 16 * j < LDN - 4 ? b[k * LDN + its + 16 * j] : R(0);
            #pragma unroll
            for (int i = 0; i < ROWS; i++) out[i][j] += x[i] * y;
        }}
    }}
}}
/* A score, or -inf where the query may not look */
static __device__ __forceinline__ R score(R product, double scale, const R *mask, Steps m, Int q, Int k, Int queries, Int keys) {{
    if (k >= keys || q >= queries || (CAUSAL && k > q)) return NONE;
    const R s = product * R(scale);
    return MASKED ? s + mask[q * m.row + k * m.column] : s;
}}
"""

_FORWARD = """
extern "C" __global__ void __launch_bounds__(256)
{name}(R *out, R *lse, const R *q, const R *k, const R *v, const R *mask, Sizes n,
    Steps so, Steps sq, Steps sk, Steps sv, Steps sm, double scale) {{
    extern __shared__ __align__(32) unsigned char memory[];
    R *const Q = (R *)memory, *const K = Q + TILE * EP, *const W = K + TILE * EP, *const P = W + TILE * VP;
    const Int queries = n.queries, keys = n.keys, head = blockIdx.x / n.tiles, first = blockIdx.x % n.tiles * TILE;
    const int tx = threadIdx.x % 16, mine = threadIdx.x / 16 * ROWS;
    mask += start(sm, n, head), k += start(sk, n, head), v += start(sv, n, head);
    R most[ROWS], total[ROWS], made[ROWS][VC] = {{}};
    for (int i = 0; i < ROWS; i++) most[i] = NONE, total[i] = 0;
    fetch<E, EP>(Q, q + start(sq, n, head), sq.row, first, queries);
    const Int end = CAUSAL && first + TILE < keys ? first + TILE : keys;
    for (Int at = 0; at < end; at += TILE) {{
        __syncthreads();
        fetch<E, EP>(K, k, sk.row, at, keys);
        fetch<V, VP>(W, v, sv.row, at, keys);
        __syncthreads();
        R s[ROWS][ROWS] = {{}};
        rows_by_rows<EP>(s, Q, K, mine, tx);
        #pragma unroll
        for (int i = 0; i < ROWS; i++) {{
            R peak = most[i];
            #pragma unroll
            for (int j = 0; j < ROWS; j++) {{
                s[i][j] = score(s[i][j], scale, mask, sm, first + mine + i, at + tx + 16 * j, queries, keys);
                peak = s[i][j] > peak ? s[i][j] : peak;
            }}
            peak = row_max(peak);
            const R base = peak == NONE ? R(0) : peak, less = exp(most[i] - base); /* all masked so far: exp(-inf - 0) = 0 */
            R sum = 0;
            #pragma unroll
            for (int j = 0; j < ROWS; j++) P[(mine + i) * LD + tx + 16 * j] = s[i][j] = exp(s[i][j] - base), sum += s[i][j];
            total[i] = total[i] * less + row_sum(sum), most[i] = peak;
            #pragma unroll
            for (int j = 0; j < VC; j++) made[i][j] *= less;
        }}
        __syncwarp(); /* a row of P is written and read by one half of a warp */
        rows_by_columns<VC, VP, false>(made, P, W, mine, tx);
    }}
    out += start(so, n, head);
    for (int i = 0; i < ROWS; i++) {{
        const Int row = first + mine + i;
        if (row >= queries) continue;
        const R share = total[i] == 0 ? R(0) : 1 / total[i];
        for (int j = 0; j < VC; j++)
            if (tx + 16 * j < V) out[row * so.row + tx + 16 * j] = made[i][j] * share;
        if (tx == 0) lse[head * queries + row] = total[i] == 0 ? -NONE : most[i] + log(total[i]);
    }}
}}
"""

_QUERIES = """
extern "C" __global__ void __launch_bounds__(256)
{name}(R *dq, R *delta, const R *lse, const R *q, const R *k, const R *v, const R *g, const R *out, const R *mask,
    Sizes n, Steps sdq, Steps sq, Steps sk, Steps sv, Steps sg, Steps so, Steps sm, double scale) {{
    extern __shared__ __align__(32) unsigned char memory[];
    R *const Q = (R *)memory, *const K = Q + TILE * EP, *const W = K + TILE * EP, *const G = W + TILE * VP, *const P = G + TILE * VP;
    const Int queries = n.queries, keys = n.keys, head = blockIdx.x / n.tiles, first = blockIdx.x % n.tiles * TILE;
    const int tx = threadIdx.x % 16, mine = threadIdx.x / 16 * ROWS;
    mask += start(sm, n, head), k += start(sk, n, head), v += start(sv, n, head), g += start(sg, n, head), out += start(so, n, head);
    R made[ROWS][EC] = {{}}, sums[ROWS], known[ROWS];
    for (int i = 0; i < ROWS; i++) {{
        const Int row = first + mine + i;
        R sum = 0;
        for (int c = tx; c < V && row < queries; c += 16) sum += g[row * sg.row + c] * out[row * so.row + c];
        sums[i] = row_sum(sum), known[i] = row < queries ? lse[head * queries + row] : R(0);
        if (tx == 0 && row < queries) delta[head * queries + row] = sums[i];
    }}
    fetch<E, EP>(Q, q + start(sq, n, head), sq.row, first, queries);
    fetch<V, VP>(G, g, sg.row, first, queries);
    const Int end = CAUSAL && first + TILE < keys ? first + TILE : keys;
    for (Int at = 0; at < end; at += TILE) {{
        __syncthreads();
        fetch<E, EP>(K, k, sk.row, at, keys);
        fetch<V, VP>(W, v, sv.row, at, keys);
        __syncthreads();
        R s[ROWS][ROWS] = {{}}, d[ROWS][ROWS] = {{}};
        rows_by_rows<EP>(s, Q, K, mine, tx);
        rows_by_rows<VP>(d, G, W, mine, tx);
        #pragma unroll
        for (int i = 0; i < ROWS; i++)
            #pragma unroll
            for (int j = 0; j < ROWS; j++) {{
                const R p = exp(score(s[i][j], scale, mask, sm, first + mine + i, at + tx + 16 * j, queries, keys) - known[i]);
                P[(mine + i) * LD + tx + 16 * j] = p * (d[i][j] - sums[i]) * R(scale);
            }}
        __syncwarp();
        rows_by_columns<EC, EP, false>(made, P, K, mine, tx);
    }}
    dq += start(sdq, n, head);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < EC; j++)
            if (first + mine + i < queries && tx + 16 * j < E) dq[(first + mine + i) * sdq.row + tx + 16 * j] = made[i][j];
}}
"""

_KEYS = """
extern "C" __global__ void __launch_bounds__(256)
{name}(R *dk, R *dv, const R *delta, const R *lse, const R *q, const R *k, const R *v, const R *g, const R *mask,
    Sizes n, Steps sdk, Steps sdv, Steps sq, Steps sk, Steps sv, Steps sg, Steps sm, double scale) {{
    extern __shared__ __align__(32) unsigned char memory[];
    R *const Q = (R *)memory, *const K = Q + TILE * EP, *const W = K + TILE * EP, *const G = W + TILE * VP, *const P = G + TILE * VP, *const D = P + TILE * LD;
    const Int queries = n.queries, keys = n.keys, head = blockIdx.x / n.tiles, first = blockIdx.x % n.tiles * TILE;
    const int tx = threadIdx.x % 16, mine = threadIdx.x / 16 * ROWS;
    mask += start(sm, n, head), q += start(sq, n, head), g += start(sg, n, head);
    R keyed[ROWS][EC] = {{}}, valued[ROWS][VC] = {{}};
    fetch<E, EP>(K, k + start(sk, n, head), sk.row, first, keys);
    fetch<V, VP>(W, v + start(sv, n, head), sv.row, first, keys);
    for (Int at = CAUSAL ? first : 0; at < queries; at += TILE) {{
        __syncthreads();
        fetch<E, EP>(Q, q, sq.row, at, queries);
        fetch<V, VP>(G, g, sg.row, at, queries);
        __syncthreads();
        R s[ROWS][ROWS] = {{}}, d[ROWS][ROWS] = {{}};
        rows_by_rows<EP>(s, Q, K, mine, tx);
        rows_by_rows<VP>(d, G, W, mine, tx);
        #pragma unroll
        for (int i = 0; i < ROWS; i++) {{
            const Int row = at + mine + i;
            const R known = row < queries ? lse[head * queries + row] : R(0), sum = row < queries ? delta[head * queries + row] : R(0);
            #pragma unroll
            for (int j = 0; j < ROWS; j++) {{
                const R p = exp(score(s[i][j], scale, mask, sm, row, first + tx + 16 * j, queries, keys) - known);
                P[(mine + i) * LD + tx + 16 * j] = p, D[(mine + i) * LD + tx + 16 * j] = p * (d[i][j] - sum) * R(scale);
            }}
        }}
        __syncthreads(); /* columns are read that other warps wrote */
        rows_by_columns<VC, VP, true>(valued, P, G, mine, tx);
        rows_by_columns<EC, EP, true>(keyed, D, Q, mine, tx);
    }}
    dk += start(sdk, n, head), dv += start(sdv, n, head);
    for (int i = 0; i < ROWS; i++) {{
        const Int row = first + mine + i;
        if (row >= keys) continue;
        for (int j = 0; j < EC; j++)
            if (tx + 16 * j < E) dk[row * sdk.row + tx + 16 * j] = keyed[i][j];
        for (int j = 0; j < VC; j++)
            if (tx + 16 * j < V) dv[row * sdv.row + tx + 16 * j] = valued[i][j];
    }}
}}
"""

_BODIES = {"forward": _FORWARD, "queries": _QUERIES, "keys": _KEYS}


def tile_of(e: int, v: int) -> int:
    """Rows of a tile: with longer rows fewer of them fit into shared memory."""
    return 64 if max(e, v) <= 64 else 32


def bytes_of(which: str, dtype: str, e: int, v: int) -> int:
    """Shared memory of a block."""
    tile = tile_of(e, v)
    ep, vp = _padded(e), _padded(v)
    rows = {"forward": 2 * ep + vp, "queries": 2 * ep + 2 * vp, "keys": 2 * ep + 2 * vp}[which]
    return tile * (rows + (tile + LONGER) * (2 if which == "keys" else 1)) * (4 if dtype == "float32" else 8)


def _padded(n: int) -> int:
    return -(-n // 4) * 4 + LONGER


def print_attention(name: str, which: str, dtype: str, e: int, v: int, causal: bool, masked: bool) -> str:
    """The CUDA C++ of one of the three kernels."""
    wide = dtype == "float64"
    head = _HEAD.format(
        real="double" if wide else "float",
        align=32 if wide else 16,
        infinity="__longlong_as_double(0x7ff0000000000000LL)" if wide else "__int_as_float(0x7f800000)",
        e=e,
        v=v,
        tile=tile_of(e, v),
        ep=_padded(e),
        vp=_padded(v),
        causal=str(causal).lower(),
        masked=str(masked).lower(),
    )
    return head + _BODIES[which].format(name=name)
