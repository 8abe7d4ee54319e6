# MLIR's headers, parsed once for all sources that include them. They are upstream's
# alone, so that a change of ShardQ's own headers does not build everything anew.
#
# target_precompile_headers makes a header in the build tree, whose path would end
# up in what is precompiled: no two checkouts would share objects in a ccache. Here
# nothing is named but what is installed, so the file is the same in all of them.

# Flags of several configurations at once are not the same, and the flag that takes
# the file is clang's.
get_property(is_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(is_multi_config OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(SHARDQ_PRECOMPILED_HEADERS OFF)
endif()

# shardq_precompile(headers...): with the flags of shardq_compiler_flags; the last
# header is the one that the compiler is called on.
function(shardq_precompile)
  set(output ${PROJECT_BINARY_DIR}/Precompiled.pch)
  list(POP_BACK ARGN last)
  find_file(SHARDQ_LAST_PRECOMPILED ${last} PATHS ${MLIR_INCLUDE_DIRS} NO_DEFAULT_PATH REQUIRED)
  mark_as_advanced(SHARDQ_LAST_PRECOMPILED)
  set(includes "")
  foreach(directory IN LISTS LLVM_INCLUDE_DIRS MLIR_INCLUDE_DIRS)
    list(APPEND includes -isystem ${directory})
  endforeach()
  foreach(header IN LISTS ARGN)
    list(APPEND includes -include ${header})
  endforeach()

  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
  separate_arguments(flags NATIVE_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}")
  get_directory_property(definitions COMPILE_DEFINITIONS)
  list(TRANSFORM definitions PREPEND -D)
  get_directory_property(options COMPILE_OPTIONS)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${CMAKE_CXX_COMPILER}
            ${SHARDQ_LLVM_DEFINITIONS} ${definitions} ${includes} ${flags} ${options}
            $<TARGET_PROPERTY:shardq_compiler_flags,INTERFACE_COMPILE_OPTIONS>
            ${CMAKE_CXX20_STANDARD_COMPILE_OPTION}
            # No time, or a file made anew would not be the same; and what the
            # headers instantiate once is not instantiated by each source.
            -Xclang -fno-pch-timestamp -fpch-instantiate-templates
            -MD -MT Precompiled.pch -MF ${output}.d -x c++-header ${SHARDQ_LAST_PRECOMPILED} -o ${output}
    DEPFILE ${output}.d
    COMMENT "Precompiling MLIR's headers"
    COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(shardq_precompiled DEPENDS ${output})
endfunction()

# Targets with flags of their own beyond definitions do without.
function(shardq_use_precompiled target)
  if(SHARDQ_PRECOMPILED_HEADERS)
    add_dependencies(${target} shardq_precompiled)
    target_compile_options(${target} PRIVATE
      "SHELL:-include-pch ${PROJECT_BINARY_DIR}/Precompiled.pch")
  endif()
endfunction()

if(SHARDQ_PRECOMPILED_HEADERS)
  shardq_precompile(
    llvm/ADT/MapVector.h
    llvm/ADT/TypeSwitch.h
    llvm/Support/FileSystem.h
    llvm/Support/JSON.h
    llvm/Support/MemoryBuffer.h
    mlir/Conversion/LLVMCommon/TypeConverter.h
    mlir/Dialect/Bufferization/IR/Bufferization.h
    mlir/Dialect/Func/IR/FuncOps.h
    mlir/Dialect/GPU/IR/GPUDialect.h
    mlir/Dialect/LLVMIR/NVVMDialect.h
    mlir/Dialect/Linalg/IR/Linalg.h
    mlir/Dialect/Math/IR/Math.h
    mlir/Dialect/SCF/IR/SCF.h
    mlir/Dialect/Vector/IR/VectorOps.h
    mlir/IR/Dominance.h
    mlir/Pass/Pass.h
    mlir/Interfaces/FunctionInterfaces.h)
endif()
