#!/bin/sh
# test_wheel.sh WHEEL [PYTHON...]
#
# Installs the wheel into an empty environment of each interpreter, by default of
# every python3 from 3.10 on that is found, without a compiler on the PATH: it
# must be imported, plan, and its program run; with torch it must pass its
# self-test on the CPU. An interpreter that has torch lends it. TORCH=2.15.0
# installs that version into the environments instead.
set -eu
cd "$(dirname "$0")/.."
wheel=${1:?usage: test_wheel.sh WHEEL [PYTHON...]}
shift
wheel=$(cd "$(dirname "$wheel")" && pwd)/$(basename "$wheel")
folder=$PWD/build/wheel-test

# Debian's, and those of pyenv; the oldest and the newest of each version.
pythons() {
  for python in /usr/bin/python3 "${HOME:-/}"/.pyenv/versions/3.*/bin/python; do
    [ -x "$python" ] && "$python" -c \
      'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' \
      2>/dev/null && echo "$python"
  done
}

is_there() {  # <interpreter> <module>
  "$1" -c "import importlib.util, sys
sys.exit(importlib.util.find_spec('$2') is None)"
}

# Where no compiler is.
alone() {
  (cd "$folder" && env -i HOME="$folder" LANG=C.UTF-8 OMP_NUM_THREADS=1 \
    PATH="$folder/empty" PYTHONPATH="${lent:-}" "$@")
}

test_one() {
  python=$1
  version=$("$python" -c 'import platform; print(platform.python_version())')
  rm -rf "$folder" && mkdir -p "$folder/empty"
  "$python" -m venv "$folder/env"
  own=$folder/env/bin/python
  begin=$(date +%s.%N)
  "$own" -m pip -q --disable-pip-version-check install --no-deps --no-index \
    "$wheel"
  lent=
  if [ -n "${TORCH:-}" ]; then
    "$own" -m pip -q --disable-pip-version-check install "torch==$TORCH" numpy
  elif is_there "$python" torch; then
    lent=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  fi
  alone "$own" -c 'import canzona; assert "env" in canzona.__file__, canzona
plan = canzona.plan("qwen3-0.6b", mesh="dp=2,tp=2")
assert plan.json["makespan"] > 0'
  alone "$folder/env/bin/canzona" --version
  imported=$(alone "$own" -c 'import time; t = time.perf_counter()
import canzona; print(f"{time.perf_counter() - t:.3f}")')
  torch="no torch"
  if [ -n "$lent" ] || [ -n "${TORCH:-}" ]; then
    alone "$own" -m canzona.selftest --device cpu --model tiny
    torch="torch $(alone "$own" -c 'import torch; print(torch.__version__)')"
  fi
  seconds=$(echo "$(date +%s.%N) $begin" | awk '{ print $1 - $2 }')
  echo "wheel: Python $version, $torch: fit ($seconds s, import $imported s)"
}

[ $# -gt 0 ] || set -- $(pythons)
for python; do test_one "$python"; done
