// What each --emit writes, and the header.
//
// RUN: mkdir -p %t
// RUN: shardq-compile %s --emit=mlir | FileCheck %s --check-prefix=MLIR
// MLIR: llvm.func @take(
// MLIR-SAME: shardq.entry_point
// RUN: shardq-compile %s --emit=llvm | FileCheck %s --check-prefix=LLVM --implicit-check-not="define i32 @take__impl"
// LLVM: target triple
// LLVM-DAG: define {{.*}}i32 @take(
// LLVM-DAG: define {{.*}}ptr @shardq_module_plan()
// RUN: shardq-compile %s --emit=obj -o %t/take.o
// RUN: llvm-readelf --file-headers %t/take.o | FileCheck %s --check-prefix=OBJECT
// OBJECT: Type: REL

// The shared object needs the runtime and the C library, and shows what C calls.
// RUN: shardq-compile %s -o %t/take.so --header=%t/take.h
// RUN: llvm-readelf -d %t/take.so | FileCheck %s --check-prefix=NEEDED --implicit-check-not=NEEDED
// NEEDED: NEEDED) Shared library: [libshardq_runtime.so.1]
// NEEDED: NEEDED) Shared library: [libc.so.6]
// NEEDED: SONAME) Library soname: [take.so]
// RUN: llvm-nm -D --defined-only --format=just-symbols %t/take.so | FileCheck %s --check-prefix=EXPORTS
// EXPORTS: shardq_module_plan
// EXPORTS-NEXT: take
// EXPORTS-NOT: {{.}}

// A compiler links as well as a linker, and the same bytes come out again.
// RUN: shardq-compile %s -o %t/by-compiler.so --linker=%cc
// RUN: llvm-nm -D --defined-only --format=just-symbols %t/by-compiler.so | FileCheck %s --check-prefix=EXPORTS
// RUN: mkdir -p %t/again
// RUN: shardq-compile %s -o %t/again/take.so --header=%t/again/take.h --runtime=%shardq_libs --cpu=x86-64-v3
// RUN: cmp %t/take.so %t/again/take.so
// RUN: cmp %t/take.h %t/again/take.h
// RUN: shardq-compile %s -o %t/native.so --cpu=native
func.func @take(%source: tensor<?x4xbf16>, %rows: tensor<?xi32>, %n: index) -> (tensor<?x4xbf16>, index) {
  %taken = shardq.take_rows %source[%rows] : (tensor<?x4xbf16>, tensor<?xi32>) -> tensor<?x4xbf16>
  return %taken, %n : tensor<?x4xbf16>, index
}
