//===- tensor.h - DLPack arguments of compiled functions --------*- C -*-===//
//
// A compiled module has a C function for each of its public functions,
//
//   int32_t attention(shardq_context *context, void *stream,
//                     const DLTensor *arg0, ..., int64_t scalar, ...,
//                     DLTensor *result0, ...);
//
// in the order of the program's arguments, then of its results. It checks every
// tensor against the program's types before anything runs. docs/Integration.md
// says more; the rules of runtime.h hold here too.
//
//===----------------------------------------------------------------------===//

#ifndef SHARDQ_TENSOR_H
#define SHARDQ_TENSOR_H

#include "shardq/runtime.h"

#include <dlpack/dlpack.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why the last call of a compiled function on this context returned what it
 * returned, and that status. A tensor that was refused reads
 *   attention: argument 3 "kv": element type is float32, expected bfloat16
 * and is forgotten at the context's next call; nothing has run, and the other
 * ranks know nothing of it. Any other error is that of shardq_context_status.
 * Not while the context runs. SHARDQ_INVALID for a NULL context. */
SHARDQ_API shardq_status shardq_context_message(shardq_context *context,
                                                char *message,
                                                size_t message_size);

/*===--- For generated code ----------------------------------------------===*/

/* What the program's type says of a tensor. */
typedef struct shardq_tensor_spec {
  const char *name;     /* NULL where the program gives none */
  const int64_t *sizes; /* by dimension; -1: any */
  const int64_t
      *strides; /* by dimension, in elements; -1: any; NULL: contiguous
                 */
  int32_t is_result;
  int32_t number;     /* among the arguments or results, scalars included */
  int32_t dtype_code; /* DLDataTypeCode; one lane */
  int32_t dtype_bits; /* at 8 bits, (u)int8 is taken for any code */
  int32_t rank;
  int32_t alignment; /* bytes, of the first element */
} shardq_tensor_spec;

typedef struct shardq_function_spec {
  size_t struct_size;
  size_t tensor_size; /* sizeof(shardq_tensor_spec) */
  const char *name;
  const shardq_tensor_spec *tensors; /* arguments, then results */
  int32_t num_tensors;
  int32_t device_type; /* DLDeviceType: kDLCPU or kDLCUDA */
} shardq_function_spec;

/* Checks a call's tensors and fills in a memref descriptor of each: pointer
 * twice, offset 0, sizes, strides, in words of 8 bytes. SHARDQ_INVALID for the
 * first one that is wrong, kept for shardq_context_message; the communicator
 * has no part in it. */
SHARDQ_API int32_t shardq_rt_import(shardq_context *context,
                                    const shardq_function_spec *function,
                                    const DLTensor *const *tensors,
                                    void *const *descriptors);

/* Copies a result from where the program left it to where the caller wants it:
 * two descriptors of tensor number `tensor` of the function. Does nothing where
 * `status` is an error. Returns `status`, or SHARDQ_INVALID where sizes that
 * the type leaves open differ. Host memory only. */
SHARDQ_API int32_t shardq_rt_export(shardq_context *context,
                                    const shardq_function_spec *function,
                                    int32_t tensor, const void *computed,
                                    const void *wanted, int32_t status);

#ifdef __cplusplus
} // extern "C"
#endif

#endif /* SHARDQ_TENSOR_H */
