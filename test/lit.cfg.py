# The .mlir and .test files by FileCheck; test/Unit has the unit test binaries.
#
# With SHARDQ_ROUNDTRIP=1 in the environment, every shardq-opt of a RUN line first
# writes what it read as text and as bytecode, reads both back and compares.
#
# Most of what shardq-run does with a small program is LLVM's optimizer. Programs of
# RUN lines do without, but for those that say --optimize=3, and of Integration's
# scripts one in three cases has it; SHARDQ_OPTIMIZE=3 gives it to all that do not say.

import os
import shutil

import lit.formats
import lit.llvm

lit.llvm.initialize(lit_config, config)
from lit.llvm import llvm_config
from lit.llvm.subst import ToolSubst

config.name = "ShardQ"
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "consumer"]
config.test_format = lit.formats.ShTest(execute_external=False)
config.test_source_root = os.path.join(config.shardq_source_dir, "test")
config.test_exec_root = os.path.join(config.shardq_binary_dir, "test")

tools_dir = os.path.join(config.shardq_binary_dir, "bin")
# The tools under test come first, then FileCheck, not, mlir-opt, split-file.
for directory in (config.llvm_tools_dir, tools_dir):
    llvm_config.with_environment("PATH", directory, append_path=True)

# LLVM is not instrumented: its containers cross into code that is, and what it
# keeps until the process ends looks leaked. Its bump allocators too: our copies of
# their inline functions poison a slab that LLVM's then hands out without a word.
config.environment["ASAN_OPTIONS"] = ":".join(
    ["detect_container_overflow=0", "detect_leaks=0", "allow_user_poisoning=0"]
)
config.environment["UBSAN_OPTIONS"] = "print_stacktrace=1"

config.substitutions += [
    ("%shardq_src", config.shardq_source_dir),
    ("%shardq_bin", config.shardq_binary_dir),
    ("%shardq_libs", os.path.join(config.shardq_binary_dir, "lib")),
    ("%llvm_tools", config.llvm_tools_dir),
    ("%mlir_include", config.mlir_include_dir),
    ("%mlir_cmake", config.mlir_cmake_dir),
    ("%cmake", config.cmake),
    ("%python", config.python),
    ("%cxx", config.cxx),
    ("%cc", config.cc),
]
optimize = os.environ.get("SHARDQ_OPTIMIZE")
if optimize:
    config.environment["SHARDQ_OPTIMIZE"] = optimize
llvm_config.add_tool_substitutions(
    [ToolSubst("shardq-run", extra_args=[f"--optimize={optimize or 0}"])], [tools_dir])
if os.environ.get("SHARDQ_ROUNDTRIP") == "1":
    llvm_config.add_tool_substitutions(
        [ToolSubst("shardq-opt", extra_args=["--verify-roundtrip"])], [tools_dir])

# NVIDIA's assembler, where shardq-assemble-kernels finds it.
if "CUDA_HOME" in os.environ:
    config.environment["CUDA_HOME"] = os.environ["CUDA_HOME"]
for directory in (os.path.join(os.environ.get("CUDA_HOME", "/nowhere"), "bin"),
                  "/usr/local/cuda/bin", config.environment["PATH"]):
    if shutil.which("ptxas", path=directory):
        config.available_features.add("ptxas")

if config.sanitizers:
    config.available_features.add("sanitizer")
if config.runtime_only:
    config.available_features.add("runtime-only")
    config.excludes += ["Device", "IR", "Transforms", "Conversion", "Integration", "Run",
                        "Tools"]

# A hung rank ends as a failed test. lit needs psutil for that.
try:
    import psutil
except ImportError:
    pass
else:
    lit_config.maxIndividualTestTime = 600
