# canzona_version is what "cli/version.h" declares, in a source that is written at
# build time, so that a commit recompiles one small file.

set(version_source ${CMAKE_BINARY_DIR}/generated/version/version.cc)
set(version_options "plan_only=${CANZONA_PLAN_ONLY}")
if(CANZONA_CUDA)
  string(APPEND version_options " cuda=${CMAKE_CUDA_COMPILER_VERSION}")
endif()
if(CANZONA_SANITIZE)
  string(APPEND version_options " sanitize=${CANZONA_SANITIZE}")
endif()

add_custom_target(
  canzona_version_source
  COMMAND
    ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}
    -DSOURCE=${version_source} -DVERSION=${PROJECT_VERSION}
    -DBUILD_TYPE=$<CONFIG> "-DOPTIONS=${version_options}"
    "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" -P
    ${PROJECT_SOURCE_DIR}/cmake/write_version.cmake
  BYPRODUCTS ${version_source}
  COMMENT "Looking up the commit"
  VERBATIM)

add_library(canzona_version OBJECT ${version_source})
add_dependencies(canzona_version canzona_version_source)
target_include_directories(canzona_version PRIVATE ${PROJECT_SOURCE_DIR})
