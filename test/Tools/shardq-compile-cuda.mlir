// Host code and kernels in one shared object, without a GPU or a driver.
//
// RUN: mkdir -p %t
// RUN: shardq-compile %s --target=cuda --ptxas=none -o %t/take.so --header=%t/take.h
// RUN: llvm-readelf -d %t/take.so | FileCheck %s --check-prefix=NEEDED --implicit-check-not=NEEDED
// NEEDED: NEEDED) Shared library: [libshardq_runtime.so.1]
// RUN: llvm-nm -D --defined-only --format=just-symbols %t/take.so | FileCheck %s --check-prefix=EXPORTS
// EXPORTS: shardq_module_image
// EXPORTS-NEXT: shardq_module_plan
// EXPORTS-NEXT: take
// EXPORTS-NOT: {{.}}
// RUN: FileCheck %s --check-prefix=HEADER < %t/take.h
// HEADER: const shardq_gpu_image *shardq_module_image(void);
// HEADER: int32_t take(shardq_context *context, void *stream,
// HEADER-NEXT: const DLTensor *source,
// HEADER-NEXT: const DLTensor *rows,
// HEADER-NEXT: DLTensor *result0);
// RUN: shardq-compile %s --target=cuda --arch=sm_80 --emit=ptx | FileCheck %s --check-prefix=PTX
// PTX: .target sm_80
// PTX: .entry shardq_take_rows
// RUN: %if ptxas %{ shardq-compile %s --target=cuda --emit=mlir | FileCheck %s --check-prefix=CUBIN %}
// CUBIN: @shardq_image_code("\7FELF
func.func @take(%source: tensor<?x4xbf16>, %rows: tensor<?xi32>) -> tensor<?x4xbf16> {
  %taken = shardq.take_rows %source[%rows] : (tensor<?x4xbf16>, tensor<?xi32>) -> tensor<?x4xbf16>
  return %taken : tensor<?x4xbf16>
}
