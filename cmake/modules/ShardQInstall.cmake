# Headers, and the package that find_package(ShardQ) finds: in the install tree,
# and in the build tree with ShardQ_DIR=<build>/lib/cmake/ShardQ.

include(CMakePackageConfigHelpers)

set(SHARDQ_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ShardQ)
set(SHARDQ_BUILD_CMAKE_DIR ${PROJECT_BINARY_DIR}/lib/cmake/ShardQ)

# The runtime installs its own headers.
if(NOT SHARDQ_RUNTIME_ONLY)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/shardq
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
          FILES_MATCHING PATTERN "*.h" PATTERN "*.td")
  install(DIRECTORY ${PROJECT_BINARY_DIR}/include/shardq
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
          FILES_MATCHING PATTERN "*.h.inc" PATTERN "CMakeFiles" EXCLUDE)
endif()

install(EXPORT ShardQTargets NAMESPACE ShardQ:: DESTINATION ${SHARDQ_CMAKE_DIR}
        COMPONENT development)
export(EXPORT ShardQTargets NAMESPACE ShardQ::
       FILE ${SHARDQ_BUILD_CMAKE_DIR}/ShardQTargets.cmake)

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/modules/ShardQConfig.cmake.in
  ${SHARDQ_BUILD_CMAKE_DIR}/ShardQConfig.cmake
  INSTALL_DESTINATION ${SHARDQ_CMAKE_DIR}
  NO_SET_AND_CHECK_MACRO)
# Until 1.0 a minor version may break its users.
write_basic_package_version_file(
  ${SHARDQ_BUILD_CMAKE_DIR}/ShardQConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${SHARDQ_BUILD_CMAKE_DIR}/ShardQConfig.cmake
              ${SHARDQ_BUILD_CMAKE_DIR}/ShardQConfigVersion.cmake
        DESTINATION ${SHARDQ_CMAKE_DIR} COMPONENT development)
