#!/bin/sh
# Times our rules on a GPU beside PyTorch's. Uses the python3 that is there and
# installs nothing; arguments go to bench/against_torch_cuda.py.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
"$python" -c 'import torch' 2>/dev/null ||
  { echo "bench: $python has no PyTorch; name one with PYTHON=" >&2; exit 1; }
case " $* " in
  *" --device cpu "*) ;;
  *) "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' ||
       { echo "bench: $python's PyTorch finds no GPU" >&2; exit 1; } ;;
esac
exec "$python" bench/against_torch_cuda.py "$@"
