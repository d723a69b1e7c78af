# Flags that everything is compiled with.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The static libraries also go into libcanzona.so, whose only visible names are
# those of canzona/c/canzona.h. Nothing is compiled twice.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# Without these words ccache stores nothing that has a precompiled header.
find_program(CANZONA_CCACHE ccache)
if(CANZONA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      ${CANZONA_CCACHE})
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()

# A fused multiply-add rounds once instead of twice. Machines differ in whether
# the compiler may use one, so it may not: a plan has the same bits on x86_64
# and aarch64.
set(cxx_flags -ffp-contract=off)
set(cuda_flags -fmad=false)
# Messages name files from the root, wherever the tree lies.
list(APPEND cxx_flags -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
list(APPEND cuda_flags
     -Xcompiler=-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
list(APPEND cxx_flags -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
     -Woverloaded-virtual -Wcast-qual -Wextra-semi)
# nvcc's output for the host compiler is not pedantic. It warns (554) of a view
# of constants that converts to itself.
list(APPEND cuda_flags -Xcompiler=-Wall,-Wextra -diag-suppress=554)
if(CANZONA_WHEEL)
  list(APPEND cuda_flags --compress-mode=size)
else()
  list(APPEND cuda_flags -lineinfo)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
   AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 wrongly warns of "x" + std::string (its bug 105651).
  list(APPEND cxx_flags -Wno-restrict)
endif()
if(CANZONA_WARNINGS_AS_ERRORS)
  list(APPEND cxx_flags -Werror)
  list(APPEND cuda_flags -Werror=all-warnings)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${cxx_flags}>"
                    "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")

if(CANZONA_SANITIZE STREQUAL "address")
  set(sanitize_flags -fsanitize=address,undefined
                     -fno-sanitize-recover=undefined)
elseif(CANZONA_SANITIZE STREQUAL "thread")
  set(sanitize_flags -fsanitize=thread)
elseif(CANZONA_SANITIZE)
  message(FATAL_ERROR
          "CANZONA_SANITIZE is '${CANZONA_SANITIZE}', expected address, "
          "thread or nothing")
endif()
if(sanitize_flags)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${sanitize_flags}>"
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(${sanitize_flags})
endif()

if(CANZONA_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "CANZONA_BUILD_FUZZERS needs clang++ (libFuzzer), the "
                        "compiler is ${CMAKE_CXX_COMPILER_ID}; use "
                        "`cmake --preset fuzz`")
  endif()
  # The libraries report their coverage; only the targets link the fuzzer.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
