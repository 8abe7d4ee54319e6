// DEFINE: %{arch} =
// DEFINE: %{compile} = not shardq-opt %s --shardq-kernels-to-ptx=arch=%{arch} 2>&1 | \
// DEFINE:   FileCheck %s -DARCH=%{arch}
//
// REDEFINE: %{arch} = sm_75
// RUN: %{compile}
// REDEFINE: %{arch} = sm_
// RUN: %{compile}
// REDEFINE: %{arch} = sm_90b
// RUN: %{compile}
// REDEFINE: %{arch} = sm_90aa
// RUN: %{compile}
// REDEFINE: %{arch} = compute_90
// RUN: %{compile}
// REDEFINE: %{arch} = native
// RUN: %{compile}
//
// One that no card has, and LLVM would compile for an old one with a warning:
// REDEFINE: %{arch} = sm_95
// RUN: %{compile}
// REDEFINE: %{arch} = sm_80a
// RUN: %{compile}
// REDEFINE: %{arch} = sm_900
// RUN: %{compile}
//
// CHECK: error: arch is '[[ARCH]]', expected

// RUN: not shardq-opt %s --shardq-kernels-to-ptx=opt-level=9 2>&1 | FileCheck %s --check-prefix=LEVEL
// LEVEL: error: {{.*}}opt{{.*}}9

module attributes {gpu.container_module} {
  gpu.module @kernels {
    llvm.func @k() attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
}
