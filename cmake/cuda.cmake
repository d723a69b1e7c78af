# Finds nvcc, the CUDA runtime, cuBLAS and cuSOLVER, and gives the libraries as
# canzona::cuda_runtime and canzona::cuda_libraries; canzona::nccl, where there
# is NCCL. docs/decisions/0002-cuda.md says why they lie where they do.
#
# Libraries come from the toolkit, else from their PyPI packages: those that
# scripts/setup_cuda.sh put into build-cuda/pypi, or python3's own. Nothing
# links the driver, so that the program starts without one.

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  file(GLOB nvcc_folders LIST_DIRECTORIES true /usr/local/cuda-*/bin)
  list(SORT nvcc_folders COMPARE NATURAL ORDER DESCENDING)
  set(pypi_folder ${PROJECT_SOURCE_DIR}/build-cuda/pypi/nvidia/cu13/bin)
  if("$ENV{CANZONA_NVCC}" STREQUAL "pypi")
    find_program(CANZONA_NVCC nvcc PATHS ${pypi_folder} NO_DEFAULT_PATH)
  endif()
  find_program(CANZONA_NVCC nvcc PATHS /usr/local/cuda/bin ${nvcc_folders}
                                       ${pypi_folder})
  mark_as_advanced(CANZONA_NVCC)
  if(NOT CANZONA_NVCC)
    message(FATAL_ERROR
            "CANZONA_CUDA needs nvcc, which is neither on the PATH nor in "
            "/usr/local/cuda*/bin nor in build-cuda/pypi; run "
            "scripts/setup_cuda.sh, which gets it from PyPI, or name it with "
            "CUDACXX=/path/to/nvcc")
  endif()
  set(CMAKE_CUDA_COMPILER ${CANZONA_NVCC})
endif()
if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
# Ampere and newer: machine code for the two that we measure, and PTX that a
# driver compiles for the others. Hopper's own instructions need sm_90a, which
# is asked for target by target.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90-real)
endif()
set(CANZONA_HOPPER_ARCHITECTURES 90a-real)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(CANZONA_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CANZONA_CCACHE})
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  # CMake 3.25 does not know that nvcc has C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(Threads REQUIRED)

set(CANZONA_CUDA_ROOT "" CACHE PATH
    "Where else to look for cuBLAS, cuSOLVER and NCCL: include/ and lib/")

# Folders that hold include/ and lib/, first choice first.
function(canzona_cuda_prefixes result)
  set(packages ${CMAKE_BINARY_DIR}/pypi/nvidia
               ${PROJECT_SOURCE_DIR}/build-cuda/pypi/nvidia)
  execute_process(
    COMMAND python3 -c "import nvidia; print(*nvidia.__path__, sep=';')"
    OUTPUT_VARIABLE installed
    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE status)
  if(status EQUAL 0)
    list(APPEND packages ${installed})
  endif()
  set(prefixes ${CANZONA_CUDA_ROOT} ${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT} /usr)
  foreach(package IN LISTS packages)
    list(APPEND prefixes ${package}/cu13 ${package}/nccl)
  endforeach()
  set(${result} ${prefixes} PARENT_SCOPE)
endfunction()

# Sets `result` to whether the NCCL whose header this is, is new enough
# (canzona/comm/nccl/nccl_library.h).
function(canzona_nccl_is_new header result)
  set(${result} FALSE PARENT_SCOPE)
  file(STRINGS ${header} line REGEX "define NCCL_VERSION_CODE")
  if(line MATCHES "([0-9]+)$" AND CMAKE_MATCH_1 GREATER_EQUAL 22707)
    set(${result} TRUE PARENT_SCOPE)
  else()
    message(STATUS "CUDA: the NCCL of ${header} is older than 2.27.7")
  endif()
endfunction()

# canzona_find_cuda(<name> <header> <library>...): the first prefix that holds
# both. Sets <name>_INCLUDE and <name>_LIBRARY; PyPI's have no plain .so.
function(canzona_find_cuda name header)
  unset(${name}_LIBRARY PARENT_SCOPE)
  canzona_cuda_prefixes(prefixes)
  foreach(prefix IN LISTS prefixes)
    if(NOT EXISTS ${prefix}/include/${header})
      continue()
    endif()
    if(header STREQUAL "nccl.h")
      canzona_nccl_is_new(${prefix}/include/${header} is_new)
      if(NOT is_new)
        continue()
      endif()
    endif()
    find_library(
      found NAMES ${ARGN}
      PATHS ${prefix}/lib64 ${prefix}/lib
            ${prefix}/lib/${CMAKE_LIBRARY_ARCHITECTURE}
      NO_CACHE NO_DEFAULT_PATH)
    if(found)
      message(STATUS "CUDA: ${found}")
      set(${name}_INCLUDE ${prefix}/include PARENT_SCOPE)
      set(${name}_LIBRARY ${found} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# canzona_cuda_target(<name> <found>...): a library of what was found, known to
# users as canzona::<name>. Programs look for it where it was found; as the
# runtime's folder is among them, one linked with PyPI's libraries also runs
# where only the toolkit has them.
function(canzona_cuda_target name)
  set(target canzona_${name})
  add_library(${target} INTERFACE)
  add_library(canzona::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY CANZONA_LIBRARIES ${target})
  foreach(found IN LISTS ARGN)
    if(NOT ${found}_LIBRARY)
      message(FATAL_ERROR
              "${found} is neither in ${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT} nor "
              "in build-cuda/pypi; run scripts/setup_cuda.sh, or name its "
              "folder with -DCANZONA_CUDA_ROOT=")
    endif()
    target_include_directories(
      ${target} SYSTEM INTERFACE $<BUILD_INTERFACE:${${found}_INCLUDE}>)
    # The package loads torch's before it loads the library of a wheel.
    if(CANZONA_WHEEL AND NOT found STREQUAL "cudart")
      continue()
    endif()
    target_link_libraries(${target} INTERFACE ${${found}_LIBRARY})
    cmake_path(GET ${found}_LIBRARY PARENT_PATH folder)
    if(NOT CANZONA_WHEEL)
      target_link_options(${target} INTERFACE "LINKER:-rpath,${folder}")
    endif()
  endforeach()
endfunction()

# Sets CANZONA_CUDNN_INCLUDES to the folders of cuDNN's headers and of its
# frontend's, or to nothing, and CANZONA_CUDNN_FOLDER to where its library would
# be. scripts/setup_cuda.sh fetches headers alone into build-cuda/cudnn.
function(canzona_find_cudnn)
  canzona_cuda_prefixes(prefixes)
  list(PREPEND prefixes ${PROJECT_SOURCE_DIR}/build-cuda/cudnn)
  foreach(prefix IN LISTS prefixes)
    # Python's packages: nvidia/cudnn/include, and include beside nvidia.
    if(prefix MATCHES "/cu13$")
      cmake_path(GET prefix PARENT_PATH packages)
      list(APPEND prefixes ${packages}/cudnn ${packages}/..)
    endif()
  endforeach()
  foreach(header cudnn.h cudnn_frontend.h)
    unset(found)
    foreach(prefix IN LISTS prefixes)
      if(NOT found AND EXISTS ${prefix}/include/${header})
        set(found ${prefix})
      endif()
    endforeach()
    if(NOT found)
      message(STATUS "CUDA: no ${header}: attention without cuDNN")
      set(CANZONA_CUDNN_INCLUDES "" PARENT_SCOPE)
      return()
    endif()
    message(STATUS "CUDA: ${found}/include/${header}")
    list(APPEND includes ${found}/include)
    if(header STREQUAL "cudnn.h")
      set(CANZONA_CUDNN_FOLDER ${found}/lib PARENT_SCOPE)
    endif()
  endforeach()
  set(CANZONA_CUDNN_INCLUDES ${includes} PARENT_SCOPE)
endfunction()

canzona_find_cuda(cudart cuda_runtime_api.h libcudart_static.a)
canzona_find_cuda(cublasLt cublasLt.h cublasLt libcublasLt.so.13)
canzona_find_cuda(cublas cublas_v2.h cublas libcublas.so.13)
canzona_find_cuda(cusolver cusolverDn.h cusolver libcusolver.so.12)
canzona_find_cuda(nccl nccl.h nccl libnccl.so.2)

canzona_cuda_target(cuda_runtime cudart)
target_link_libraries(canzona_cuda_runtime INTERFACE Threads::Threads
                                                     ${CMAKE_DL_LIBS} rt)
canzona_cuda_target(cuda_libraries cusolver cublas cublasLt)
target_link_libraries(canzona_cuda_libraries INTERFACE canzona_cuda_runtime)
if(nccl_LIBRARY)
  canzona_cuda_target(nccl nccl)
  target_link_libraries(canzona_nccl INTERFACE canzona_cuda_runtime)
else()
  message(STATUS "CUDA: no NCCL")
endif()
