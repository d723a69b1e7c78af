# How everything is compiled.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(CANZONA_CCACHE ccache)
if(CANZONA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CANZONA_CCACHE})
endif()

# A fused multiply-add rounds once instead of twice. Whether the compiler may
# use one depends on the machine, so it may not: a plan has the same bits on
# x86_64 and aarch64.
add_compile_options(-ffp-contract=off)
# Messages name files from the root, wherever the tree lies.
add_compile_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                    -Woverloaded-virtual -Wcast-qual -Wextra-semi)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
   AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 wrongly warns of "x" + std::string (its bug 105651).
  add_compile_options(-Wno-restrict)
endif()
if(CANZONA_WARNINGS_AS_ERRORS)
  add_compile_options(-Werror)
endif()

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
  add_compile_options(${sanitize_flags} -fno-omit-frame-pointer)
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
