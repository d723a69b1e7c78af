#!/bin/sh
# Times our rules beside PyTorch's. Installs torch 2.13.0 (CPU) into
# build/torch; arguments go to bench/against_torch.py.
set -eu
cd "$(dirname "$0")/.."
python=build/torch/bin/python
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "bench: installing torch 2.13.0 into build/torch"
  python3 -m venv build/torch
  "$python" -m pip install -q torch==2.13.0 numpy
fi
exec "$python" bench/against_torch.py "$@"
