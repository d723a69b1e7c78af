#!/bin/sh
# python.sh environment | tests | quick | wheel
#
#   environment  an environment in build/python with PyTorch and the package; if
#                PYTHON names an interpreter, which has PyTorch, that one gets
#                the package and nothing else
#   tests        what the tests in python/tests need, there, and runs them
#   quick        PyTorch and pytest, there, and runs the tests that take minutes
#                on two cores, on the library of build/; without PyTorch it says
#                why and passes
#   wheel        build/wheels/canzona-*.whl for other machines with this kind of
#                CPU; with CANZONA_CUDA=OFF without CUDA
#
# All that is compiled is compiled in build/, by `make` or by this. Further
# words go to pytest.
set -eu
cd "$(dirname "$0")/.."
what=${1:?usage: python.sh environment | tests | quick | wheel}
shift
own=build/python
cpu_index=https://download.pytorch.org/whl/cpu
torch=torch==2.13.*

say() {
  echo "python: $1"
}

fail() {
  echo "python: $1" >&2
  exit 1
}

has() {  # <interpreter> <module>
  "$1" -c "import importlib.util, sys
sys.exit(importlib.util.find_spec('$2') is None)" 2>/dev/null
}

pip() {
  "$python" -m pip --disable-pip-version-check --quiet "$@"
}

# PyTorch's own wheels for CPUs are a fifth of PyPI's for x86_64; the rest of
# the world may not reach them.
install_torch() {
  has "$python" torch && return 0
  say "PyTorch into $own"
  pip install --timeout 20 --retries 0 "$torch" numpy --index-url "$cpu_index" \
    2>/dev/null && return 0
  pip install "$torch" numpy
}

choose_python() {
  if [ -n "${PYTHON:-}" ]; then
    python=$PYTHON
    has "$python" torch || fail "$python has no torch"
    return
  fi
  python=$own/bin/python
  [ -x "$python" ] || python3 -m venv "$own"
}

# Nothing else is installed: the package depends on nothing.
install_package() {
  say "the package into $("$python" -c 'import sys; print(sys.prefix)')"
  isolation=
  has "$python" scikit_build_core && isolation=--no-build-isolation
  pip install --no-deps --force-reinstall $isolation . ||
    fail "the package cannot be installed; PYTHONPATH=python does without"
}

make_environment() {
  choose_python
  [ -n "${PYTHON:-}" ] || install_torch || fail "PyTorch cannot be installed"
  install_package
  interpreter=$(absolute "$python")
  (cd build && "$interpreter" -c 'import canzona; print(canzona.doctor(machine=False))')
}

absolute() {
  case $1 in
    */*) echo "$(cd "$(dirname "$1")" && pwd)/$(basename "$1")" ;;
    *) command -v "$1" ;;
  esac
}

# Of an environment that was named only what is there is used. Tests of what
# cannot be had skip.
install_test_packages() {
  [ -n "${PYTHON:-}" ] && return 0
  while read -r package; do
    has "$python" "$package" || pip install "$package" 2>/dev/null ||
      say "no $package: its tests skip"
  done <python/tests/requirements.txt
}

run_tests() {
  choose_python
  install_test_packages
  has "$python" pytest || fail "$python has no pytest"
  "$python" -m pytest python/tests "$@"
}

# Bits on one rank, under DDP and FSDP2 of two, routing, state dicts, what
# scripts do to an optimizer, and mistakes of one rank.
run_quick_tests() {
  choose_python
  if [ -z "${PYTHON:-}" ] && ! { install_torch && pip install pytest; }; then
    say "skipped: PyTorch or pytest cannot be installed into $own"
    return 0
  fi
  PYTHONPATH=python "$python" -m pytest -q --quick python/tests "$@"
}

make_wheel() {
  python=python3
  if ! has python3 pip || ! has python3 scikit_build_core; then
    [ -x "$own/bin/python" ] || python3 -m venv "$own"
    python=$own/bin/python
  fi
  export CANZONA_WHEEL=1 CANZONA_CUDA="${CANZONA_CUDA:-ON}"
  [ "$CANZONA_CUDA" = OFF ] || sh scripts/setup_cuda.sh
  isolation=
  has "$python" scikit_build_core && isolation=--no-build-isolation
  rm -rf build/wheels
  # The tag says what scripts/check_wheel.py checks.
  _PYTHON_HOST_PLATFORM=manylinux_2_34_$(uname -m) \
    pip wheel --no-deps $isolation --wheel-dir build/wheels .
  only=
  [ "$CANZONA_CUDA" != OFF ] || only=--cpu
  "$python" scripts/check_wheel.py $only build/wheels/*.whl
}

case $what in
  environment) make_environment ;;
  tests) run_tests "$@" ;;
  quick) run_quick_tests "$@" ;;
  wheel) make_wheel ;;
  *) fail "unknown argument '$what'; expected environment, tests, quick or wheel" ;;
esac
