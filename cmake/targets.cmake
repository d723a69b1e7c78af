# One link target per folder, so that a wrong arrow does not link.

# canzona_library(<name> [HOT | QUICK] SOURCES ... DEPS ...)
#
# The library canzona_<name>, known to users as canzona::<name>. Without
# SOURCES it is a library of headers. HOT: loops over elements deserve -O3.
# QUICK: it reads or writes text, or starts what is HOT, so that nobody waits for
# it; -Og compiles in half the time.
function(canzona_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "HOT;QUICK" "" "SOURCES;DEPS")
  canzona_refuse_rest(canzona_library ${name} "${arg_UNPARSED_ARGUMENTS}")
  set(target canzona_${name})
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
    canzona_compile_kernels_alone(${arg_SOURCES})
    if(arg_QUICK)
      canzona_compile_quickly(${target} quick 12)
    else()
      canzona_optimize(${target} $<IF:$<BOOL:${arg_HOT}>,-O3,-O2>)
      canzona_compile_together(${target} HEADERS std AT_ONCE 10)
    endif()
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(canzona::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_include_directories(
    ${target} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                       $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} ${scope} ${arg_DEPS})
  set_property(GLOBAL APPEND PROPERTY CANZONA_LIBRARIES ${target})
endfunction()

# canzona_for_other_machines(<target>): in a wheel, a program or library with a
# C++ runtime of its own that needs no newer glibc than the wheel's tag says.
function(canzona_for_other_machines target)
  if(NOT CANZONA_WHEEL)
    return()
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:canzona_old_glibc>)
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
endfunction()

# `make test-cuda` builds these.
if(CANZONA_CUDA)
  add_custom_target(canzona_cuda_tests)
endif()

# canzona_test(<name> SOURCES ... [DEPS ...] [LABELS ...] [DEFINITIONS ...])
#
# The test program canzona_<name>_test; its tests are named <name>.<test>.
# One program per folder keeps builds quick. Tests that take more than a few
# seconds go into a second program with LABELS heavy: `make test-all` builds and
# runs it (CANZONA_HEAVY_TESTS), `make test` does neither. A name that ends in _heavy goes with it: of several
# labels gtest_discover_tests keeps the first, which is the name.
#
# With LABELS cuda they need a GPU: only a build with CUDA has them, and
# `make test-cuda` alone runs them. ctest then sees the program as one test,
# because every process that opens a GPU waits for it, and as the only one at a
# time. Their names begin with cuda_.
function(canzona_test name)
  if(NOT CANZONA_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" ""
                        "SOURCES;DEPS;LABELS;DEFINITIONS")
  canzona_refuse_rest(canzona_test ${name} "${arg_UNPARSED_ARGUMENTS}")
  if(NOT arg_SOURCES OR (cuda IN_LIST arg_LABELS AND NOT CANZONA_CUDA)
     OR (heavy IN_LIST arg_LABELS AND NOT CANZONA_HEAVY_TESTS))
    return()
  endif()
  set(target canzona_${name}_test)
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${arg_DEPS} GTest::gmock_main)
  target_compile_definitions(${target} PRIVATE ${arg_DEFINITIONS})
  canzona_compile_quickly(${target} gtest 16)
  if(cuda IN_LIST arg_LABELS)
    add_test(NAME ${name} COMMAND ${target})
    set_tests_properties(${name} PROPERTIES LABELS "${name};${arg_LABELS}"
                                            TIMEOUT 600 RUN_SERIAL TRUE)
    add_dependencies(canzona_cuda_tests ${target})
    return()
  endif()
  gtest_discover_tests(
    ${target}
    TEST_PREFIX ${name}.
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${name};${arg_LABELS}" TIMEOUT 600)
endfunction()

# canzona_test_objects(<name> SOURCES ... DEPS ...)
#
# canzona_<name>: sources that several test programs link, compiled once.
function(canzona_test_objects name)
  if(NOT CANZONA_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS")
  canzona_refuse_rest(canzona_test_objects ${name} "${arg_UNPARSED_ARGUMENTS}")
  add_library(canzona_${name} OBJECT ${arg_SOURCES})
  target_link_libraries(canzona_${name} PUBLIC ${arg_DEPS} GTest::gmock)
  canzona_compile_quickly(canzona_${name} gtest 16)
endfunction()

# canzona_mpi_test(<name> RANKS <n>... SOURCES ... [DEPS ...])
#
# The test program canzona_<name>_test, run by mpirun on n ranks: ctest sees
# <name>.ranks_<n>, and <name>.parts, where messages go in parts. It has a main of its own, which starts MPI. Only a build
# with MPI has it, and none with the thread sanitizer, which Open MPI's own
# threads and shared memory fill with reports.
function(canzona_mpi_test name)
  if(NOT CANZONA_BUILD_TESTS OR NOT TARGET canzona::mpi
     OR CANZONA_SANITIZE STREQUAL "thread")
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS;RANKS")
  canzona_refuse_rest(canzona_mpi_test ${name} "${arg_UNPARSED_ARGUMENTS}")
  set(target canzona_${name}_test)
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${arg_DEPS} GTest::gmock)
  canzona_compile_quickly(${target} gtest 16)
  foreach(ranks IN LISTS arg_RANKS)
    set(test ${name}.ranks_${ranks})
    add_test(NAME ${test} COMMAND ${CANZONA_MPIRUN} -n ${ranks}
                                  $<TARGET_FILE:${target}>)
    list(APPEND tests ${test})
  endforeach()
  add_test(NAME ${name}.parts COMMAND ${CANZONA_MPIRUN} -n 4
                                      $<TARGET_FILE:${target}> 37)
  set_tests_properties(
    ${tests} ${name}.parts
    PROPERTIES LABELS ${name} TIMEOUT 300 PROCESSORS 4
               ENVIRONMENT "${CANZONA_MPI_ENVIRONMENT}")
endfunction()

# A misspelt keyword would otherwise be dropped, and its files with it.
function(canzona_refuse_rest function name rest)
  if(rest)
    message(FATAL_ERROR "${function}(${name}): unexpected ${rest}")
  endif()
endfunction()

# canzona_choose_sources(<variable> <target> WITH ... WITHOUT ...)
#
# Sets the variable to the first sources if there is such a target, else to the
# second ones, which say that it is missing: absence is a file.
function(canzona_choose_sources variable target)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "WITH;WITHOUT")
  canzona_refuse_rest(canzona_choose_sources ${variable}
                      "${arg_UNPARSED_ARGUMENTS}")
  if(TARGET ${target})
    set(${variable} ${arg_WITH} PARENT_SCOPE)
  else()
    set(${variable} ${arg_WITHOUT} PARENT_SCOPE)
  endif()
endfunction()

# canzona_source_options(<source> <option>...): compiles it alone with options of
# its own, which no precompiled header would fit.
function(canzona_source_options source)
  set_source_files_properties(
    ${source} PROPERTIES COMPILE_OPTIONS "${ARGN}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# canzona_loops(<variable> <source>... [FLAGS <flag>...])
#
# Appends to the list those of portable.cc, avx2.cc and avx512.cc that fit this
# processor: the same loops for each instruction set. Their results must not
# depend on it, so nothing may be contracted or reordered; errno and traps are
# not used, and would keep the compiler from vectors.
function(canzona_loops variable)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FLAGS")
  set(loops ${arg_UNPARSED_ARGUMENTS})
  set(flags -O3 -fno-math-errno -fno-trapping-math ${arg_FLAGS})
  set(portable.cc_flags "")
  set(avx2.cc_flags -mavx2)
  set(avx512.cc_flags -mavx512f -mavx512bw -mavx512dq -mavx512vl
                      -mprefer-vector-width=512)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(REMOVE_ITEM loops avx2.cc avx512.cc)
  endif()
  foreach(source IN LISTS loops)
    canzona_source_options(${source} ${flags} ${${source}_flags})
  endforeach()
  set(${variable} ${${variable}} ${loops} PARENT_SCOPE)
endfunction()
