//===- Kernels.cpp - Float64 inner loops of the reference -----------------===//

#include "Kernels.h"

using namespace mlir::shardq;

// The tool is built for any x86-64, and wide vectors make this four times
// faster; vector types keep the speed in builds that do not optimize loops.
#if defined(__x86_64__)
#define WIDE                                                                   \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

namespace {
using Lanes = double __attribute__((ext_vector_type(8)));
// std::vector aligns to less than a whole vector.
struct __attribute__((packed, may_alias)) Unaligned {
  Lanes lanes;
};
} // namespace

static_assert(sizeof(Lanes) == run::kLanes * sizeof(double));

#define LOAD(POINTER) (reinterpret_cast<const Unaligned *>(POINTER)->lanes)
#define STORE(POINTER, VALUE)                                                  \
  (reinterpret_cast<Unaligned *>(POINTER)->lanes = (VALUE))
#define SUM_LANES(V)                                                           \
  (((V)[0] + (V)[4]) + ((V)[1] + (V)[5]) + ((V)[2] + (V)[6]) +                 \
   ((V)[3] + (V)[7]))

// Blocks of four heads and two keys: eight sums hide the latency of an
// addition, and each load serves several of them. Keys come in tiles that stay
// in cache while all heads pass over them.
static constexpr int64_t kTile = 32;

WIDE void run::dotKeys(const double *q, int64_t heads, int64_t dim,
                       const double *const *keys, int64_t count, double *dots,
                       int64_t stride) {
  for (int64_t begin = 0; begin < count; begin += kTile) {
    int64_t end = begin + kTile < count ? begin + kTile : count;
    int64_t h = 0;
    for (; h + 4 <= heads; h += 4) {
      const double *q0 = q + h * dim, *q1 = q0 + dim, *q2 = q1 + dim,
                   *q3 = q2 + dim;
      double *out = dots + h * stride;
      int64_t k = begin;
      for (; k + 2 <= end; k += 2) {
        Lanes a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
        const double *first = keys[k], *second = keys[k + 1];
        for (int64_t d = 0; d < dim; d += kLanes) {
          Lanes x = LOAD(first + d), y = LOAD(second + d);
          Lanes w0 = LOAD(q0 + d), w1 = LOAD(q1 + d);
          Lanes w2 = LOAD(q2 + d), w3 = LOAD(q3 + d);
          a0 += w0 * x, a1 += w1 * x, a2 += w2 * x, a3 += w3 * x;
          b0 += w0 * y, b1 += w1 * y, b2 += w2 * y, b3 += w3 * y;
        }
        out[k] = SUM_LANES(a0), out[k + 1] = SUM_LANES(b0);
        out[stride + k] = SUM_LANES(a1), out[stride + k + 1] = SUM_LANES(b1);
        out[2 * stride + k] = SUM_LANES(a2);
        out[2 * stride + k + 1] = SUM_LANES(b2);
        out[3 * stride + k] = SUM_LANES(a3);
        out[3 * stride + k + 1] = SUM_LANES(b3);
      }
      for (; k < end; ++k) {
        Lanes a0 = 0, a1 = 0, a2 = 0, a3 = 0;
        for (int64_t d = 0; d < dim; d += kLanes) {
          Lanes x = LOAD(keys[k] + d);
          a0 += LOAD(q0 + d) * x, a1 += LOAD(q1 + d) * x;
          a2 += LOAD(q2 + d) * x, a3 += LOAD(q3 + d) * x;
        }
        out[k] = SUM_LANES(a0), out[stride + k] = SUM_LANES(a1);
        out[2 * stride + k] = SUM_LANES(a2);
        out[3 * stride + k] = SUM_LANES(a3);
      }
    }
    for (; h < heads; ++h)
      for (int64_t k = begin; k < end; ++k) {
        Lanes a = 0;
        for (int64_t d = 0; d < dim; d += kLanes)
          a += LOAD(q + h * dim + d) * LOAD(keys[k] + d);
        dots[h * stride + k] = SUM_LANES(a);
      }
  }
}

WIDE void run::dotAbsHeads(const double *q, int64_t heads, int64_t dim,
                           const double *key, double *dots) {
  for (int64_t h = 0; h < heads; ++h) {
    Lanes a = 0;
    for (int64_t d = 0; d < dim; d += kLanes)
      a += __builtin_elementwise_abs(LOAD(q + h * dim + d) * LOAD(key + d));
    dots[h] = SUM_LANES(a);
  }
}

WIDE void run::addWeighted(const double *p, int64_t stride, int64_t heads,
                           const double *const *rows, int64_t count,
                           int64_t dim, double *out, double *outAbs) {
  for (int64_t begin = 0; begin < count; begin += kTile) {
    int64_t end = begin + kTile < count ? begin + kTile : count;
    int64_t h = 0;
    for (; h + 4 <= heads; h += 4) {
      const double *p0 = p + h * stride, *p1 = p0 + stride, *p2 = p1 + stride,
                   *p3 = p2 + stride;
      for (int64_t d = 0; d < dim; d += kLanes) {
        double *to = out + h * dim + d, *toAbs = outAbs + h * dim + d;
        Lanes a0 = LOAD(to), a1 = LOAD(to + dim), a2 = LOAD(to + 2 * dim),
              a3 = LOAD(to + 3 * dim);
        Lanes b0 = LOAD(toAbs), b1 = LOAD(toAbs + dim),
              b2 = LOAD(toAbs + 2 * dim), b3 = LOAD(toAbs + 3 * dim);
        for (int64_t k = begin; k < end; ++k) {
          Lanes x = LOAD(rows[k] + d), y = __builtin_elementwise_abs(x);
          a0 += p0[k] * x, a1 += p1[k] * x, a2 += p2[k] * x, a3 += p3[k] * x;
          b0 += p0[k] * y, b1 += p1[k] * y, b2 += p2[k] * y, b3 += p3[k] * y;
        }
        STORE(to, a0), STORE(to + dim, a1), STORE(to + 2 * dim, a2);
        STORE(to + 3 * dim, a3);
        STORE(toAbs, b0), STORE(toAbs + dim, b1), STORE(toAbs + 2 * dim, b2);
        STORE(toAbs + 3 * dim, b3);
      }
    }
    for (; h < heads; ++h)
      for (int64_t d = 0; d < dim; d += kLanes) {
        Lanes a = LOAD(out + h * dim + d), b = LOAD(outAbs + h * dim + d);
        for (int64_t k = begin; k < end; ++k) {
          Lanes x = LOAD(rows[k] + d);
          a += p[h * stride + k] * x;
          b += p[h * stride + k] * __builtin_elementwise_abs(x);
        }
        STORE(out + h * dim + d, a);
        STORE(outAbs + h * dim + d, b);
      }
  }
}
