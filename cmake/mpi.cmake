# Finds MPI and gives it as canzona::mpi, for canzona/comm/mpi alone, with
# CANZONA_MPIRUN, the launcher that the tests use. Without MPI there is no such
# target.
#
# Debian lets several live side by side: mpicxx.openmpi and mpicxx.mpich.

set(CANZONA_MPI auto CACHE STRING
    "openmpi, mpich, off, or auto: Open MPI, else MPICH, else none")
set_property(CACHE CANZONA_MPI PROPERTY STRINGS auto openmpi mpich off)

# canzona_try_mpi(<kind>): looks for one of them. Sets CANZONA_MPI_KIND,
# CANZONA_MPICXX and CANZONA_MPIRUN if it is there.
function(canzona_try_mpi kind)
  find_program(compiler NAMES mpicxx.${kind} mpicxx NO_CACHE)
  find_program(launcher NAMES mpirun.${kind} mpirun NO_CACHE)
  if(NOT compiler OR NOT launcher)
    return()
  endif()
  execute_process(COMMAND ${launcher} --version
                  OUTPUT_VARIABLE words ERROR_VARIABLE words)
  set(openmpi_words "Open ?MPI|OpenRTE|PRRTE")
  set(mpich_words "HYDRA|MPICH")
  if(NOT words MATCHES "${${kind}_words}")
    return()
  endif()
  set(CANZONA_MPI_KIND ${kind} PARENT_SCOPE)
  set(CANZONA_MPICXX ${compiler} PARENT_SCOPE)
  set(CANZONA_MPIRUN ${launcher} PARENT_SCOPE)
endfunction()

unset(CANZONA_MPI_KIND)
if(CANZONA_MPI STREQUAL "auto")
  foreach(kind openmpi mpich)
    if(NOT CANZONA_MPI_KIND)
      canzona_try_mpi(${kind})
    endif()
  endforeach()
elseif(CANZONA_MPI MATCHES "^(openmpi|mpich)$")
  canzona_try_mpi(${CANZONA_MPI})
  if(NOT CANZONA_MPI_KIND)
    message(FATAL_ERROR
            "CANZONA_MPI=${CANZONA_MPI}, but there is no mpicxx and mpirun of "
            "it; install libopenmpi-dev and openmpi-bin (or libmpich-dev and "
            "mpich), or say CANZONA_MPI=off")
  endif()
elseif(NOT CANZONA_MPI STREQUAL "off")
  message(FATAL_ERROR "CANZONA_MPI is '${CANZONA_MPI}', expected auto, "
                      "openmpi, mpich or off")
endif()

if(NOT CANZONA_MPI_KIND)
  message(STATUS "MPI: none")
  return()
endif()

set(MPI_CXX_COMPILER ${CANZONA_MPICXX})
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI 3.0 REQUIRED COMPONENTS CXX)
# Not the C++ functions of MPI-2.
list(FILTER MPI_CXX_LIBRARIES EXCLUDE REGEX "libmpi(ch)?_?cxx")
message(STATUS "MPI: ${CANZONA_MPI_KIND}, ${MPI_CXX_LIBRARIES}")

# Plain paths, so that a program that uses an installed Canzona need not find
# MPI itself.
add_library(canzona_mpi INTERFACE)
add_library(canzona::mpi ALIAS canzona_mpi)
set_target_properties(canzona_mpi PROPERTIES EXPORT_NAME mpi)
foreach(folder IN LISTS MPI_CXX_INCLUDE_DIRS)
  target_include_directories(canzona_mpi SYSTEM
                             INTERFACE $<BUILD_INTERFACE:${folder}>)
endforeach()
target_compile_definitions(canzona_mpi INTERFACE OMPI_SKIP_MPICXX=1
                                                 MPICH_SKIP_MPICXX=1)
target_link_libraries(canzona_mpi INTERFACE ${MPI_CXX_LIBRARIES})
set_property(GLOBAL APPEND PROPERTY CANZONA_LIBRARIES canzona_mpi)

# For tests: more ranks than cores, as root in a container, wherever the cores
# are. Open MPI's plugins leak and are unloaded, so that a leak cannot be told
# from others by its place; the tests on threads look for ours.
set(CANZONA_MPI_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1
    OMPI_MCA_hwloc_base_binding_policy=none
    ASAN_OPTIONS=detect_leaks=0)
