#!/bin/sh
# setup.sh [--tests | --browser | --strace | --mpich | --python | --tools]
#
# Makes sure that the machine has what a build needs, and installs only what
# is missing (Debian packages). If all is there it needs neither network nor
# root, and changes nothing.
#
#   (nothing)   compiler, CMake, libraries of the program
#   --tests     GoogleTest as well, for the tests and the benches
#   --browser   a browser for the report's test; that test skips without one
#   --strace    strace, for tests of calls that fail; they do with less
#   --mpich     MPICH beside Open MPI, for its tests
#   --python    python3 that can make environments, for the package
#   --tools     clang, clang-format and clang-tidy for fuzz, format and lint
#
# Libraries outside the system's folders are found through CMAKE_PREFIX_PATH.
set -u

missing=""   # packages to install, separated by spaces
optional=""  # wished for, but not worth a failure

has_program() {
  command -v "$1" >/dev/null 2>&1
}

need_program() {  # <program> <package>
  has_program "$1" || missing="$missing $2"
}

wish_program() {  # <program> <package>
  has_program "$1" || optional="$optional $2"
}

compiler_finds() {  # <header>
  printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" |
    "${CXX:-g++}" -E -x c++ - >/dev/null 2>&1
}

has_header() {  # <header>
  compiler_finds "$1" && return 0
  old_ifs=$IFS
  IFS=':;'
  for prefix in ${CMAKE_PREFIX_PATH:-}; do
    if [ -e "$prefix/include/$1" ]; then
      IFS=$old_ifs
      return 0
    fi
  done
  IFS=$old_ifs
  return 1
}

# has_library <file>: a library that the linker or CMake will find.
has_library() {
  [ "$("${CXX:-g++}" -print-file-name="$1" 2>/dev/null)" != "$1" ] && return 0
  old_ifs=$IFS
  IFS=':;'
  for prefix in ${CMAKE_PREFIX_PATH:-}; do
    if [ -e "$prefix/lib/$1" ] || [ -e "$prefix/lib64/$1" ]; then
      IFS=$old_ifs
      return 0
    fi
  done
  IFS=$old_ifs
  return 1
}

need_library() {  # <name> <package>: static or shared
  has_library "lib$1.a" || has_library "lib$1.so" || missing="$missing $2"
}

need_header() {  # <header> <package>
  has_header "$1" || missing="$missing $2"
}

fail() {
  echo "setup: $1" >&2
  exit 1
}

# Runs a command as root, or says why it cannot.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif has_program sudo; then
    sudo "$@"
  else
    echo "setup: not root, and there is no sudo" >&2
    return 1
  fi
}

apt() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get \
    -o Acquire::Retries=1 -o Acquire::http::Timeout=20 "$@"
}

install_packages() {
  if ! has_program apt-get; then
    echo "setup: there is no apt-get on this machine" >&2
    return 1
  fi
  echo "setup: installing $*"
  # The stored lists may do; a fresh machine has none.
  apt install -y --no-install-recommends "$@" >/dev/null 2>&1 && return 0
  apt update && apt install -y --no-install-recommends "$@"
}

check_build() {
  need_program "${CXX:-g++}" g++
  need_program cmake cmake
  need_header nlohmann/json.hpp nlohmann-json3-dev
  need_header CLI/CLI.hpp libcli11-dev
  need_header fmt/format.h libfmt-dev
  need_header toml++/toml.h libtomlplusplus-dev
  need_library openblas libopenblas-dev
  need_program mpicxx libopenmpi-dev
  need_program mpirun openmpi-bin
  wish_program ninja ninja-build
  wish_program ccache ccache
}

check_tests() {
  need_header gtest/gtest.h libgtest-dev
  need_header gmock/gmock.h libgmock-dev
  has_program git || need_program patch patch
}

# Debian's own names, so that mpicxx and mpirun stay Open MPI's.
check_mpich() {
  need_program mpicxx.mpich libmpich-dev
  need_program mpirun.mpich mpich
}

check_python() {
  need_program python3 python3
  python3 -c 'import ensurepip, venv' 2>/dev/null ||
    missing="$missing python3-venv"
}

# clang's own libraries for sanitizers and fuzzers are a package apart.
has_clang_runtime() {
  has_program clang++ &&
    [ -e "$(clang++ --print-runtime-dir)/libclang_rt.fuzzer-$(uname -m).a" ]
}

check_tools() {
  need_program clang++ clang
  has_clang_runtime || missing="$missing libclang-rt-dev"
  need_program clang-format clang-format
  need_program clang-tidy clang-tidy
}

# Optional packages come along with needed ones, never alone: a machine that
# can build is left as it is.
install_missing() {
  [ -z "$missing" ] && return 0
  # shellcheck disable=SC2086  # a list of words
  install_packages $missing $optional ||
    fail "please install these packages and try again:$missing"
}

# try_once <package> <what is said if there is none>: tests do without it.
try_once() {
  tried=build/.setup-$1-failed
  if [ -e "$tried" ]; then
    echo "setup: no $1 (tried before; remove $tried to try again)"
    return 0
  fi
  install_packages "$1" && return 0
  mkdir -p build && : >"$tried"
  echo "setup: no $1 could be installed; $2"
}

# A browser is large and often cannot be had.
install_browser() {
  for program in chromium chromium-browser google-chrome; do
    has_program $program && return 0
  done
  try_once chromium "the report's browser test skips"
}

install_strace() {
  has_program strace ||
    try_once strace "calls of the system fail by a preloaded library alone"
}

cd "$(dirname "$0")/.." || exit 1
case ${1:-} in
  "") check_build && install_missing ;;
  --tests) check_build && check_tests && install_missing ;;
  --tools) check_build && check_tests && check_tools && install_missing ;;
  --browser) install_browser ;;
  --strace) install_strace ;;
  --mpich) check_mpich && install_missing ;;
  --python) check_python && install_missing ;;
  *) fail "unknown argument '$1'; expected --tests, --browser, --strace, --mpich, --python, --tools or nothing" ;;
esac
