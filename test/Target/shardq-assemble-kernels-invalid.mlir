// RUN: shardq-opt %s --shardq-assemble-kernels=ptxas=none --split-input-file --verify-diagnostics

// expected-error @+1 {{binary @kernels needs 'shardq.kernels', a list of {name, threads, dynamic_shared}, on it or on its module}}
gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k0() { ret; }">]

// -----

// expected-error @+1 {{has kernel {name = "k0", threads = 32 : i32}, expected {name = "...", threads = N : i32, dynamic_shared = N : i32}}}
gpu.binary @kernels {shardq.kernels = [{name = "k0", threads = 32 : i32}]}
    [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k0() { ret; }">]

// -----

// expected-error @+1 {{has kernel "k0" of 2048 threads, expected 1 to 1024}}
gpu.binary @kernels {shardq.kernels = [{name = "k0", threads = 2048 : i32, dynamic_shared = 0 : i32}]}
    [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k0() { ret; }">]

// -----

// expected-error @+1 {{has kernel "k0" with -1 bytes of dynamic shared memory}}
gpu.binary @kernels {shardq.kernels = [{name = "k0", threads = 32 : i32, dynamic_shared = -1 : i32}]}
    [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k0() { ret; }">]

// -----

// expected-error @+1 {{has kernel "k0" twice}}
gpu.binary @kernels {shardq.kernels = [{name = "k0", threads = 32 : i32, dynamic_shared = 0 : i32},
                                                  {name = "k0", threads = 32 : i32, dynamic_shared = 0 : i32}]}
    [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k0() { ret; }">]

// -----

// A name that begins alike is another kernel.
// expected-error @+1 {{has no kernel "k0" in its PTX}}
gpu.binary @kernels {shardq.kernels = [{name = "k0", threads = 32 : i32, dynamic_shared = 0 : i32}]}
    [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k01() { ret; }">]

// -----

// expected-error @+1 {{binary @kernels holds no PTX: run gpu-module-to-binary{format=isa} for one #nvvm.target}}
gpu.binary @kernels {shardq.kernels = []} [#gpu.object<#nvvm.target<chip = "sm_90a">, bin = "\7FELF">]

// -----

// expected-error @+1 {{is for native, expected sm_NN}}
gpu.binary @kernels {shardq.kernels = []} [#gpu.object<#nvvm.target<chip = "native">, assembly = "">]

// -----

// expected-note @+1 {{the first is here}}
gpu.binary @first [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = "">]
// expected-error @+1 {{is the module's second binary, expected one}}
gpu.binary @second [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = "">]

// -----

// expected-error @+1 {{is not compiled: run gpu-module-to-binary before shardq-assemble-kernels}}
gpu.module @kernels {
}

// -----

// expected-error @+1 {{is named "shardq_image_code", which is a name of the embedded kernels}}
func.func private @shardq_image_code()

// -----

module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".entry k0() { ret; }">]
  func.func @launch(%n: index) {
    // expected-error @+1 {{refers to "kernels": lower launches to the runtime before shardq-assemble-kernels}}
    gpu.launch_func @kernels::@k0 blocks in (%n, %n, %n) threads in (%n, %n, %n)
    return
  }
}
