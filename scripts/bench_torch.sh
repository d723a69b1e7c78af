#!/bin/sh
# bench_torch.sh [argument]...          our rules beside PyTorch's
# bench_torch.sh decoder [argument]...  the decoder of `canzona train`
#
# Installs torch 2.13.0 (CPU) into build/torch; arguments go to
# bench/against_torch.py or bench/torch_decoder.py.
set -eu
cd "$(dirname "$0")/.."
python=build/torch/bin/python
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "bench: installing torch 2.13.0 into build/torch"
  python3 -m venv build/torch
  "$python" -m pip install -q torch==2.13.0 numpy
fi
if [ "${1:-}" = decoder ]; then
  shift
  # One thread at work, so that none waits at a barrier for a busy core.
  OMP_NUM_THREADS=1 exec "$python" bench/torch_decoder.py \
    --ours build/canzona "$@"
fi
exec "$python" bench/against_torch.py "$@"
