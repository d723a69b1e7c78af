# canzona_version gives its users the header "cli/version.h", written at build
# time. Only the program links it, so that a commit recompiles one file.

set(version_folder ${CMAKE_BINARY_DIR}/generated)
set(version_options "plan_only=${CANZONA_PLAN_ONLY}")
if(CANZONA_CUDA)
  string(APPEND version_options " cuda=${CMAKE_CUDA_COMPILER_VERSION}")
endif()
if(CANZONA_SANITIZE)
  string(APPEND version_options " sanitize=${CANZONA_SANITIZE}")
endif()

add_custom_target(
  canzona_version_header
  COMMAND
    ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}
    -DHEADER=${version_folder}/cli/version.h -DVERSION=${PROJECT_VERSION}
    -DBUILD_TYPE=$<CONFIG> "-DOPTIONS=${version_options}"
    "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" -P
    ${PROJECT_SOURCE_DIR}/cmake/write_version.cmake
  BYPRODUCTS ${version_folder}/cli/version.h
  COMMENT "Looking up the commit"
  VERBATIM)

add_library(canzona_version INTERFACE)
add_dependencies(canzona_version canzona_version_header)
target_include_directories(canzona_version INTERFACE ${version_folder})
