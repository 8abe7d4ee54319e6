//===- Kernels.h - Float64 inner loops of the reference ---------*- C++ -*-===//
//
// Rows are padded with zeros to a multiple of eight values, so that the loops
// have no remainders.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUN_KERNELS_H
#define SHARDQ_RUN_KERNELS_H

#include <cstdint>

namespace mlir::shardq::run {

inline constexpr int64_t kLanes = 8;
inline int64_t padToLanes(int64_t size) {
  return (size + kLanes - 1) / kLanes * kLanes;
}

/// dots[h * stride + k] = q[h, :] . keys[k] for all heads and `count` keys,
/// each of `dim` values.
void dotKeys(const double *q, int64_t heads, int64_t dim,
             const double *const *keys, int64_t count, double *dots,
             int64_t stride);

/// dots[h] = sum over d of |q[h, d] * key[d]|.
void dotAbsHeads(const double *q, int64_t heads, int64_t dim, const double *key,
                 double *dots);

/// out[h, d] += p[h * stride + k] * rows[k][d], and the same of absolute
/// values, for `count` rows. Weights are not negative.
void addWeighted(const double *p, int64_t stride, int64_t heads,
                 const double *const *rows, int64_t count, int64_t dim,
                 double *out, double *outAbs);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_KERNELS_H
