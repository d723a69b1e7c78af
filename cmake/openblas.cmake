# Finds OpenBLAS with LAPACK and gives it as canzona::openblas.
#
# The static library is preferred and hidden inside what links it: it can be
# told which kernels to run before it starts, and does not meet another BLAS
# of the same process. CANZONA_BLAS_SHARED is set if there is only a shared
# one; the program then has to restart itself to choose kernels.
include(CheckCXXSourceCompiles)
find_package(Threads REQUIRED)

option(CANZONA_PREFER_SHARED_BLAS "Link libopenblas.so though there is a .a"
       OFF)
find_library(CANZONA_OPENBLAS_STATIC NAMES libopenblas.a)
find_library(CANZONA_OPENBLAS_SHARED NAMES libopenblas.so openblas)
mark_as_advanced(CANZONA_OPENBLAS_STATIC CANZONA_OPENBLAS_SHARED)

# The archive names no libraries of its own. Its Fortran sources need a few
# functions of the compiler's runtime, which may be there without the package
# that holds the file for -lgfortran.
find_library(CANZONA_FORTRAN_RUNTIME
             NAMES gfortran libgfortran.so.5 libgfortran.so.4
             HINTS ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES})
find_library(CANZONA_LAPACK NAMES lapack)
mark_as_advanced(CANZONA_FORTRAN_RUNTIME CANZONA_LAPACK)

set(blas_probe
    "extern \"C\" void gotoblas_init(void);
     extern \"C\" void cblas_sgemm(void);
     extern \"C\" void ssyevd_(void);
     extern \"C\" void dorgqr_(void);
     extern \"C\" void spotrf_(void);
     int main() {
       gotoblas_init(); cblas_sgemm(); ssyevd_(); dorgqr_(); spotrf_();
     }")

# Sets `result` to the first way to link `openblas` that works, or to nothing.
function(canzona_probe_blas result openblas)
  set(${result} "" PARENT_SCOPE)
  set(fortran ${CANZONA_FORTRAN_RUNTIME})
  set(lapack ${CANZONA_LAPACK})
  foreach(extras "" "${fortran}" "${lapack}" "${lapack};${fortran}")
    set(CMAKE_REQUIRED_LIBRARIES ${openblas} ${extras} Threads::Threads m)
    set(CMAKE_REQUIRED_QUIET ON)
    string(MD5 key "${CMAKE_REQUIRED_LIBRARIES}")
    check_cxx_source_compiles("${blas_probe}" CANZONA_BLAS_LINKS_${key})
    if(CANZONA_BLAS_LINKS_${key})
      set(${result} "${openblas};${extras};Threads::Threads;m" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

set(CANZONA_BLAS_SHARED 0)
set(blas_libraries "")
if(CANZONA_OPENBLAS_STATIC AND NOT CANZONA_PREFER_SHARED_BLAS)
  canzona_probe_blas(blas_libraries ${CANZONA_OPENBLAS_STATIC})
endif()
if(NOT blas_libraries AND CANZONA_OPENBLAS_SHARED)
  canzona_probe_blas(blas_libraries ${CANZONA_OPENBLAS_SHARED})
  set(CANZONA_BLAS_SHARED 1)
endif()
if(NOT blas_libraries)
  message(FATAL_ERROR
          "no usable OpenBLAS (static: ${CANZONA_OPENBLAS_STATIC}, shared: "
          "${CANZONA_OPENBLAS_SHARED}, Fortran runtime: "
          "${CANZONA_FORTRAN_RUNTIME}); on Debian install libopenblas-dev, "
          "elsewhere add its prefix to CMAKE_PREFIX_PATH, or configure with "
          "-DCANZONA_PLAN_ONLY=ON")
endif()
list(REMOVE_ITEM blas_libraries "")
message(STATUS "OpenBLAS: ${blas_libraries}")

add_library(canzona_openblas INTERFACE)
add_library(canzona::openblas ALIAS canzona_openblas)
target_link_libraries(canzona_openblas INTERFACE ${blas_libraries})
if(NOT CANZONA_BLAS_SHARED)
  target_link_options(canzona_openblas INTERFACE "LINKER:--exclude-libs,ALL")
endif()
set_target_properties(canzona_openblas PROPERTIES EXPORT_NAME openblas)
set_property(GLOBAL APPEND PROPERTY CANZONA_LIBRARIES canzona_openblas)
