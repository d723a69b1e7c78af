# A cold build stays short: the sources of a room are compiled several at a
# time, behind precompiled headers. One changed source recompiles those it is
# compiled with, so batches are small enough for that to take seconds.
#
# Sources with options of their own (kernels for one instruction set) are
# compiled alone, as always. Every source also compiles alone: CANZONA_JUMBO=OFF
# does it, `make lint` and the preset `dev` with it.

option(CANZONA_JUMBO
       "Compile several sources at a time, behind precompiled headers" ON)

set(headers_folder ${CMAKE_CURRENT_LIST_DIR}/headers)
set(empty_source ${CMAKE_BINARY_DIR}/generated/empty.cc)
file(CONFIGURE OUTPUT ${empty_source} CONTENT "// A target needs a source.\n")

# canzona_headers(<name> FROM <header> LEVEL <-O...> DEPS ...): precompiles
# headers/<header> for targets of that level; g++ refuses it on another.
function(canzona_headers name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FROM;LEVEL" "DEPS")
  if(NOT CANZONA_JUMBO)
    return()
  endif()
  set(target canzona_headers_${name})
  add_library(${target} OBJECT ${empty_source})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_link_libraries(${target} PRIVATE ${arg_DEPS})
  canzona_optimize(${target} ${arg_LEVEL})
  target_precompile_headers(
    ${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:${headers_folder}/${arg_FROM}>)
endfunction()

# canzona_compile_together(<target> HEADERS <name> AT_ONCE <n>)
function(canzona_compile_together target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADERS;AT_ONCE" "")
  if(NOT CANZONA_JUMBO)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON
                                             UNITY_BUILD_BATCH_SIZE
                                             ${arg_AT_ONCE})
  target_precompile_headers(${target} REUSE_FROM
                            canzona_headers_${arg_HEADERS})
  # g++ refuses headers that were precompiled with -fPIC for what is compiled
  # with -fPIE.
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
  endif()
endfunction()

# canzona_optimize(<target> <level>): in a Release build. The last level given
# counts, so a source's own options come after.
function(canzona_optimize target level)
  target_compile_options(
    ${target}
    PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${level}>)
endfunction()

# canzona_compile_quickly(<target> <headers> <n>): for what runs for seconds but
# would compile for minutes: tests, views, verbs.
function(canzona_compile_quickly target headers at_once)
  canzona_optimize(${target} -Og)
  canzona_compile_together(${target} HEADERS ${headers} AT_ONCE ${at_once})
endfunction()

# Sources of CUDA repeat names in their unnamed namespaces; CMake 3.31 and newer
# would batch them, too.
function(canzona_compile_kernels_alone)
  set(kernels ${ARGN})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  if(kernels)
    set_source_files_properties(${kernels}
                                PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()
