//===- Npy.h - Arrays in .npy files -----------------------------*- C++ -*-===//
//
// NumPy's file format, versions 1.0 and 2.0, little-endian and row-major:
//
//   | element | descr                      |
//   | ------- | -------------------------- |
//   | f32     | '<f4'                      |
//   | f16     | '<f2'                      |
//   | bf16    | '<u2' or '|V2'; see below  |
//   | i32     | '<i4'                      |
//   | i64     | '<i8', also for `index`    |
//   | i1      | '|b1'                      |
//
// NumPy has no bf16. It is stored by its 16 bits: `x.view(np.uint16)` of
// an ml_dtypes array, or the void '|V2' that np.save writes for one. ShardQ
// writes '<u2'.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_RUN_NPY_H
#define SHARDQ_RUN_NPY_H

#include "Array.h"

namespace mlir::shardq::run {

/// Parses the contents of a file. Errors do not name the file.
llvm::Expected<Array> parseNpy(llvm::StringRef bytes);
/// Reads a file. Errors name it.
llvm::Expected<Array> readNpy(llvm::StringRef path);
llvm::Error writeNpy(llvm::StringRef path, const Array &array);

} // namespace mlir::shardq::run

#endif // SHARDQ_RUN_NPY_H
