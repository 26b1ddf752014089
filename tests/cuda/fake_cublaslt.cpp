/* A cuBLASLt of the host: what kernels/cuda/cublaslt.py calls, on matrices in main memory. It refuses what the library refuses: distances between
   columns that are too short, addresses that are not aligned as was said, an algorithm that was not asked for. */
#include <complex>
#include <cstdint>
#include <cstring>

enum { OK, INVALID = 7, NOT_SUPPORTED = 15 };
struct Description { int compute, scalar; int32_t turn_first, turn_second; uint32_t epilogue; const char *bias; };
struct Matrix { int type; uint64_t rows, columns; int64_t lead; int32_t count; int64_t step; };
struct Preference { uint64_t workspace; uint32_t ways, alignment[4]; };
struct Algorithm { uint64_t magic, alignment[4], rest[3]; };
struct Found { Algorithm algorithm; size_t workspace; int state; float waves; int reserved[4]; };
enum { REAL32, REAL64, REAL16, COMPLEX32 = 4, COMPLEX64 = 5, BFLOAT16 = 14 };
static const uint64_t MAGIC = 0x666c616d62656175;

static uint64_t calls;
extern "C" {
uint64_t fl_calls() { return calls; }

int cublasLtCreate(void **made) { return *made = new int(1), OK; }

int cublasLtMatmulDescCreate(Description **made, int compute, int scalar) {
    return *made = new Description{compute, scalar, 0, 0, 1, nullptr}, OK;
}
int cublasLtMatmulDescDestroy(Description *made) { return delete made, OK; }
int cublasLtMatmulDescSetAttribute(Description *d, int what, const void *value, size_t size) {
    if (what == 3 && size == 4) memcpy(&d->turn_first, value, 4);
    else if (what == 4 && size == 4) memcpy(&d->turn_second, value, 4);
    else if (what == 7 && size == 4) memcpy(&d->epilogue, value, 4);
    else if (what == 8 && size == 8) memcpy(&d->bias, value, 8);
    else return INVALID;
    return OK;
}

int cublasLtMatrixLayoutCreate(Matrix **made, int type, uint64_t rows, uint64_t columns, int64_t lead) {
    return lead < (int64_t)rows ? (int)INVALID : (*made = new Matrix{type, rows, columns, lead, 1, 0}, (int)OK);
}
int cublasLtMatrixLayoutDestroy(Matrix *made) { return delete made, OK; }
int cublasLtMatrixLayoutSetAttribute(Matrix *m, int what, const void *value, size_t size) {
    if (what == 5 && size == 4) memcpy(&m->count, value, 4);
    else if (what == 6 && size == 8) memcpy(&m->step, value, 8);
    else return INVALID;
    return OK;
}

int cublasLtMatmulPreferenceCreate(Preference **made) { return *made = new Preference{0, 7, {256, 256, 256, 256}}, OK; }
int cublasLtMatmulPreferenceDestroy(Preference *made) { return delete made, OK; }
int cublasLtMatmulPreferenceSetAttribute(Preference *p, int what, const void *value, size_t size) {
    if (what == 1 && size == 8) memcpy(&p->workspace, value, 8);
    else if (what == 3 && size == 4) memcpy(&p->ways, value, 4);
    else if (what >= 5 && what <= 8 && size == 4) memcpy(&p->alignment[what - 5], value, 4);
    else return INVALID;
    return OK;
}

int cublasLtMatmulAlgoGetHeuristic(
    void *, Description *d, Matrix *a, Matrix *b, Matrix *c, Matrix *out, Preference *p, int count, Found *found, int *n
) {
    const int complex = a->type == COMPLEX32 || a->type == COMPLEX64;
    *n = 0;
    if (d->epilogue != 1 && (complex || a->type == REAL64)) return NOT_SUPPORTED;
    if (a->type != b->type || a->type != c->type || c != out || count < 1) return INVALID;
    *found = Found{{MAGIC, {}, {}}, 64, 0, 1, {}};
    for (int i = 0; i < 4; i++) found->algorithm.alignment[i] = p->alignment[i];
    return *n = 1, OK;
}
}

static float from_half(uint16_t h) { _Float16 v; memcpy(&v, &h, 2); return v; }
static uint16_t to_half(float f) { _Float16 v = (_Float16)f; uint16_t h; memcpy(&h, &v, 2); return h; }
static float from_bf16(uint16_t h) { uint32_t u = (uint32_t)h << 16; float f; memcpy(&f, &u, 4); return f; }
static uint16_t to_bf16(float f) { uint32_t u; memcpy(&u, &f, 4); return f != f ? 0x7fff : (u + 0x7fff + ((u >> 16) & 1)) >> 16; }
struct half { typedef float wide; uint16_t x; operator float() const { return from_half(x); } half(float f) : x(to_half(f)) {} };
struct brain { typedef float wide; uint16_t x; operator float() const { return from_bf16(x); } brain(float f) : x(to_bf16(f)) {} };

template <class T, class W, class S>
static void multiply(const Description *d, S alpha, const T *a, const Matrix *la, const T *b, const Matrix *lb, S beta, T *out, const Matrix *lo) {
    const int64_t depth = d->turn_first ? la->rows : la->columns;
    for (int64_t one = 0; one < lo->count; one++, a += la->step, b += lb->step, out += lo->step)
        for (int64_t j = 0; j < (int64_t)lo->columns; j++)
            for (int64_t i = 0; i < (int64_t)lo->rows; i++) {
                W sum = 0;
                for (int64_t k = 0; k < depth; k++)
                    sum += (W)a[d->turn_first ? k + i * la->lead : i + k * la->lead] * (W)b[d->turn_second ? j + k * lb->lead : k + j * lb->lead];
                W found = (W)alpha * sum;
                if (beta != S(0)) found += (W)beta * (W)out[i + j * lo->lead];
                if constexpr (!std::is_same<W, std::complex<double>>::value)
                    if (d->epilogue & 4) found += (W)((const T *)d->bias)[i];
                out[i + j * lo->lead] = T(found);
            }
}

extern "C" int cublasLtMatmul(
    void *handle, const Description *d, const void *alpha, const void *a, const Matrix *la, const void *b, const Matrix *lb, const void *beta,
    const void *c, const Matrix *, void *out, const Matrix *lo, const Algorithm *algorithm, void *workspace, size_t size, void *
) {
    calls++;
    const void *given[] = {a, b, c, out};
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)given[i] % algorithm->alignment[i]) return INVALID;
    if (!handle || algorithm->magic != MAGIC || size < 64 || !workspace || c != out || (d->epilogue & 4 && !d->bias)) return INVALID;
#define CASE(type, T, W, S) \
    case type: multiply<T, W, S>(d, *(const S *)alpha, (const T *)a, la, (const T *)b, lb, *(const S *)beta, (T *)out, lo); break;
    switch (la->type) {
        CASE(REAL32, float, double, float)
        CASE(REAL64, double, double, double)
        CASE(COMPLEX32, std::complex<float>, std::complex<double>, std::complex<float>)
        CASE(COMPLEX64, std::complex<double>, std::complex<double>, std::complex<double>)
        case BFLOAT16: multiply<brain, float, float>(d, *(const float *)alpha, (const brain *)a, la, (const brain *)b, lb, *(const float *)beta, (brain *)out, lo); break;
        case REAL16: {
            const bool narrow = d->compute == 64;  /* then the factors are float16, too */
            const float first = narrow ? from_half(*(const uint16_t *)alpha) : *(const float *)alpha;
            const float second = narrow ? from_half(*(const uint16_t *)beta) : *(const float *)beta;
            multiply<half, float, float>(d, first, (const half *)a, la, (const half *)b, lb, second, (half *)out, lo);
            break;
        }
        default: return NOT_SUPPORTED;
    }
    return OK;
}
