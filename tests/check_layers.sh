#!/bin/sh
# check_layers.sh <root>
#
# Fails if a room includes what lies to its right: an arrow may only point
# left. Link targets catch a wrong arrow late or, for headers, never. The same
# holds for the folders of canzona/plan. Fails, too, if a header is not in the
# namespace of its room, or a source of canzona/ or cli/ other than
# base/environment.h reads or changes the environment.
set -u
root=${1:?usage: check_layers.sh <root>}
cd "$root" || exit 2

failures=$(mktemp)
trap 'rm -f "$failures"' EXIT

complain() {
  echo "$1" >>"$failures"
}

# The rooms that a folder may include; nothing for a folder not known here.
allowed_rooms() {
  case $1 in
    # What canzona.h, the C++ interface, may show.
    canzona) echo "$(allowed_rooms canzona/saving)" ;;
    canzona/base) echo "base" ;;
    canzona/trace) echo "base trace" ;;
    canzona/comm) echo "base trace comm" ;;
    canzona/linalg) echo "base linalg" ;;
    canzona/rules) echo "base linalg rules" ;;
    canzona/shapes) echo "base shapes" ;;
    canzona/plan) echo "base rules shapes plan" ;;
    canzona/sim) echo "base rules shapes plan sim" ;;
    canzona/runtime)
      echo "base trace comm linalg rules shapes plan runtime" ;;
    canzona/data) echo "base data" ;;
    canzona/checkpoint) echo "base shapes checkpoint" ;;
    canzona/saving)
      echo "$(allowed_rooms canzona/runtime) checkpoint saving" ;;
    canzona/model) echo "base trace comm linalg shapes model" ;;
    canzona/train)
      echo "base trace comm linalg rules shapes plan runtime data checkpoint" \
        "saving model train" ;;
    canzona/measure)
      echo "base trace comm linalg rules shapes plan sim runtime data" \
        "checkpoint saving model train measure" ;;
    canzona/report) echo "base trace rules shapes plan sim report" ;;
    canzona/c)
      echo "$(allowed_rooms canzona/runtime) sim report c" ;;
    canzona/report/bench)
      echo "$(allowed_rooms canzona/measure) report" ;;
    cli | bench | fuzz | tests)
      echo "base trace comm linalg rules shapes plan sim runtime" \
        "measure data checkpoint saving model train report c" ;;
  esac
}

# allowed_library <folder> <header> <file>: true if the file of the folder may
# include the library's header.
allowed_library() {
  case $2 in
    nlohmann/*) [ "$1" = canzona/base ] || [ "$1" = canzona/shapes ] ;;
    fmt/*) [ "${1#canzona/report}" != "$1" ] || [ "$1" = cli ] ;;
    CLI/*) [ "$1" = cli ] ;;
    benchmark/*) [ "$1" = bench ] ;;
    cuda* | cublas* | cusolver*)
      [ "$1" = canzona/linalg ] || [ "$1" = bench ] ||
        [ "${3#canzona/model/cuda/}" != "$3" ] ;;
    cudnn*) [ "${3#canzona/model/cuda/cudnn_}" != "$3" ] ;;
    toml++/*) [ "$1" = canzona/train ] ;;
    mpi.h | nccl.h) [ "$1" = canzona/comm ] ;;
    # A plan depends on its inputs alone.
    thread | mutex | atomic | future | chrono | ctime | random | sys/*)
      [ "$1" != canzona/plan ] && [ "$1" != canzona/rules ] &&
        [ "$1" != canzona/sim ] ;;
    *) true ;;
  esac
}

# check_include <folder> <file> <path as written, with its quotes or brackets>
check_include() {
  case $3 in
    '"canzona/'*)
      room=${3#'"canzona/'}
      room=${room%%/*}
      case " $(allowed_rooms "$1") " in
        *" $room "*) ;;
        *) complain "$2: $1 may not include $3" ;;
      esac ;;
    '"cli/'*)
      [ "$1" = cli ] || complain "$2: only cli may include $3" ;;
    '"'*)
      # These folders have helpers beside their sources.
      case $1 in
        bench | fuzz | tests) ;;
        *) complain "$2: write $3 as a path from the root" ;;
      esac ;;
    '<'*)
      name=${3#<}
      allowed_library "$1" "${name%>}" "$2" ||
        complain "$2: $1 may not include $3" ;;
  esac
}

# The folders of canzona/plan, each of which may include those before it.
# "plan" stands for the files beside the folders, except make_plan and
# option_table.
plan_folders="plan makespan cost schedule predict layout search micro_groups \
strategies option_table validate json storage make_plan"

# plan_level <path in canzona/plan>: its number in that list; nothing for a
# folder not known here.
plan_level() {
  case $1 in
    make_plan.*) folder=make_plan ;;
    option_table.*) folder=option_table ;;
    */*) folder=${1%%/*} ;;
    *) folder=plan ;;
  esac
  level=0
  for known in $plan_folders; do
    [ "$known" = "$folder" ] && echo $level
    level=$((level + 1))
  done
}

# check_plan_folders <file of canzona/plan> <path, with its quotes>
check_plan_folders() {
  from=$(plan_level "${1#canzona/plan/}")
  to=${2#'"canzona/plan/'}
  to=$(plan_level "${to%'"'}")
  if [ -z "$from" ] || [ -z "$to" ]; then
    complain "$1: $2: add the folder to plan_folders in tests/check_layers.sh"
  elif [ "$to" -gt "$from" ]; then
    complain "$1: may not include $2, which comes later in canzona/plan"
  fi
}

# The paths that a file includes, with their quotes or brackets.
includes() {
  tr -d ' \t' <"$1" | sed -n 's/^#include\(["<][^">]*[">]\).*/\1/p'
}

# The headers that are installed: canzona.h and what it includes.
installed=
if [ -f canzona/canzona.h ]; then
  next=canzona/canzona.h
  while [ -n "$next" ]; do
    installed="$installed $next "
    found=
    for header in $next; do
      for include in $(includes "$header"); do
        include=${include#'"'}
        include=${include%'"'}
        case "$installed $found " in
          *" $include "*) ;;
          *) case $include in canzona/*) found="$found $include" ;; esac ;;
        esac
      done
    done
    next=$found
  done
fi

# Names of base and of installed headers are in canzona, others in their room.
check_namespace() {
  case $1 in
    canzona/base/* | canzona/c/canzona.h) return ;;
    # The body of a member of Communicator.
    canzona/comm/running.h) return ;;
    canzona/*/*.h) ;;
    *) return ;;
  esac
  room=${1#canzona/}
  room=canzona::${room%%/*}
  case "$installed " in *" $1 "*) room=canzona ;; esac
  first=$(sed -n 's/^namespace \(canzona[a-z_:]*\) {$/\1/p' "$1" | tail -n 1)
  case $first in
    '' | "$room" | canzona::*::*) ;;
    *) complain "$1: its names belong in namespace $room, not $first" ;;
  esac
}

check_environment() {
  case $1 in
    canzona/base/environment.h | *_test.cc) return ;;
    canzona/* | cli/*)
      grep -Eqw 'getenv|secure_getenv|setenv|unsetenv|putenv|environ' "$1" &&
        complain "$1: only canzona/base/environment.h reads the environment" ;;
  esac
}

# Tests may measure time and draw random numbers; tests on a GPU may be callers
# with streams of their own.
check_file() {
  check_environment "$2"
  check_namespace "$2"
  case $2 in canzona/report/bench/*) set -- canzona/report/bench "$2" ;; esac
  includes "$2" | while read -r include; do
    case $2:$include in
      *_test.cc:'<chrono>' | *_test.cc:'<random>' | *_test.cc:'<thread>') ;;
      *_cuda_test.cc:'<cuda_runtime_api.h>') ;;
      *_test.cc:'<nlohmann/'* | tests/c/*.cc:'<nlohmann/'*) ;;
      */test_*.cc:'<atomic>') ;;
      *_cuda_test.cc:'<cuda'*) ;;
      *) check_include "$1" "$2" "$include" ;;
    esac
    case $2:$include in
      *_test.cc:* | */test_*:*) ;;
      canzona/plan/*:'"canzona/plan/'*) check_plan_folders "$2" "$include" ;;
    esac
  done
}

check_folder() {
  if [ -z "$(allowed_rooms "$1")" ]; then
    complain "$1: unknown room, add it to tests/check_layers.sh"
    return
  fi
  find "$1" -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \
    >"$failures.files"
  while read -r file; do
    check_file "$1" "$file"
  done <"$failures.files"
  rm -f "$failures.files"
}

for folder in canzona/*/ cli bench fuzz tests; do
  [ -d "$folder" ] && check_folder "${folder%/}"
done

if [ -s "$failures" ]; then
  sort "$failures"
  exit 1
fi
