#!/bin/sh
# test_megatron.sh [wheels | words for test_megatron.py]
#
# Gets the wheels of Megatron-Core into build/megatron, unpacked (12 MB, to be
# carried to a machine without the rest of the world), and trains inside it: on
# the GPU, or with --cpu without one. PYTHON: an interpreter that has torch.
# The libraries are build/libcanzona.so and build-cuda/libcanzona_cuda.so.
set -eu
cd "$(dirname "$0")/.."
site=build/megatron/site
python=${PYTHON:-python3}
[ -n "${PYTHON:-}" ] || [ ! -x build/python/bin/python ] ||
  python=build/python/bin/python

get() {  # <package> <version>
  [ -d "$site/$(echo "$1" | tr - _)-$2.dist-info" ] && return 0
  "$python" -m pip --disable-pip-version-check --quiet download --no-deps \
    --python-version 3.12 --only-binary=:all: --dest build/megatron/wheels \
    "$1==$2"
  for wheel in build/megatron/wheels/*.whl; do
    "$python" -m zipfile -e "$wheel" "$site"
  done
}

get megatron-core 0.19.2
get emerging-optimizers 0.3.0
get absl-py 2.5.1
get psutil 7.2.2
[ "${1:-}" != wheels ] || exit 0

PYTHONPATH=python:$site${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 \
  exec "$python" scripts/test_megatron.py "$@"
