# Installs the libraries, their headers and what find_package(canzona) reads.

include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/canzona)

get_property(libraries GLOBAL PROPERTY CANZONA_LIBRARIES)
install(TARGETS ${libraries} EXPORT canzona_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(CODE "set(source_root \"${PROJECT_SOURCE_DIR}\")
set(headers_folder \"${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake)
install(EXPORT canzona_targets FILE canzonaTargets.cmake NAMESPACE canzona::
        DESTINATION ${package_folder})

set(CANZONA_NEEDS_FMT OFF)
if(TARGET canzona_report)
  set(CANZONA_NEEDS_FMT ON)
endif()
set(CANZONA_NEEDS_THREADS OFF)
if(TARGET canzona_openblas OR TARGET canzona_comm OR TARGET canzona_checkpoint)
  set(CANZONA_NEEDS_THREADS ON)
endif()
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/canzonaConfig.cmake.in
  ${CMAKE_BINARY_DIR}/generated/canzonaConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(
  ${CMAKE_BINARY_DIR}/generated/canzonaConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/canzonaConfig.cmake
              ${CMAKE_BINARY_DIR}/generated/canzonaConfigVersion.cmake
        DESTINATION ${package_folder})
