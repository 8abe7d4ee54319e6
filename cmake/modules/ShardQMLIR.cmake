# Finds MLIR 22 and sets up its build helpers for ShardQ's compiler code.

# MLIR's version file accepts no partial version, so it is compared here.
find_package(MLIR REQUIRED CONFIG)
if(NOT LLVM_VERSION_MAJOR EQUAL 22)
  message(FATAL_ERROR "ShardQ needs MLIR 22, found ${LLVM_PACKAGE_VERSION} in ${MLIR_DIR}")
endif()
message(STATUS "MLIR ${LLVM_PACKAGE_VERSION} in ${MLIR_DIR}")
if(NOT MLIR_LINK_MLIR_DYLIB)
  message(FATAL_ERROR "ShardQ links libMLIR: pass -DMLIR_LINK_MLIR_DYLIB=ON. "
                      "Static MLIR libraries would put a second MLIR into the plugin")
endif()

set(LLVM_RUNTIME_OUTPUT_INTDIR ${CMAKE_BINARY_DIR}/bin)
set(LLVM_LIBRARY_OUTPUT_INTDIR ${CMAKE_BINARY_DIR}/lib)
set(MLIR_BINARY_DIR ${CMAKE_BINARY_DIR})
set(LLVM_EXTERNAL_LIT "${LLVM_TOOLS_BINARY_DIR}/lit" CACHE FILEPATH "lit")
list(APPEND CMAKE_MODULE_PATH "${MLIR_CMAKE_DIR}" "${LLVM_CMAKE_DIR}")
include(TableGen)
include(AddLLVM)
include(AddMLIR)

separate_arguments(SHARDQ_LLVM_DEFINITIONS NATIVE_COMMAND ${LLVM_DEFINITIONS})

# The flags of every target that includes MLIR headers. LLVM's are SYSTEM
# includes, so that -Werror judges ShardQ's code alone.
add_library(shardq_compiler_flags INTERFACE)
target_compile_definitions(shardq_compiler_flags INTERFACE ${SHARDQ_LLVM_DEFINITIONS})
target_compile_options(shardq_compiler_flags INTERFACE
  # Of executables too: they share precompiled headers with libraries.
  -fPIC -fno-rtti -fno-exceptions -fvisibility-inlines-hidden
  -Wall -Wextra -Wno-unused-parameter $<$<BOOL:${SHARDQ_WERROR}>:-Werror>)

include_directories(SYSTEM ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
include_directories(${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include
                    ${PROJECT_SOURCE_DIR}/runtime/include)
link_directories(${LLVM_BUILD_LIBRARY_DIR})

include(ShardQPrecompiled)

# Gives a target those flags. What is exported cannot link the interface library,
# which has no meaning outside of this build.
function(shardq_set_compiler_flags target)
  target_compile_definitions(${target} PRIVATE
    $<TARGET_PROPERTY:shardq_compiler_flags,INTERFACE_COMPILE_DEFINITIONS>)
  target_compile_options(${target} PRIVATE
    $<TARGET_PROPERTY:shardq_compiler_flags,INTERFACE_COMPILE_OPTIONS>)
  shardq_use_precompiled(${target})
endfunction()

# shardq_add_library(name sources... DEPENDS ... LINK_LIBS ...)
# A static library of compiler code; LINK_LIBS names ShardQ libraries. What it
# needs of MLIR comes from the one libMLIR that every final target links.
function(shardq_add_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK_LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  add_library(ShardQ::${name} ALIAS ${name})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
  shardq_set_compiler_flags(${name})
  target_link_libraries(${name} PUBLIC ${ARG_LINK_LIBS} MLIR LLVM)
  target_include_directories(${name} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  shardq_require_built(${name} development)
  install(TARGETS ${name} EXPORT ShardQTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
endfunction()

# shardq_add_tool(name sources... LINK_LIBS ...): an installed executable.
function(shardq_add_tool name)
  cmake_parse_arguments(ARG "" "" "LINK_LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE shardq_compiler_flags ${ARG_LINK_LIBS} MLIR LLVM)
  shardq_use_precompiled(${name})
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  shardq_require_built(${name} tools)
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endfunction()
