#!/bin/sh
# Times our rules on a GPU beside PyTorch's. Uses the python3 that is there and
# installs nothing; arguments go to bench/against_torch_cuda.py.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
holds() {  # <expression of torch>
  "$python" -c "import torch; assert $1" 2>/dev/null
}

holds True ||
  { echo "bench: $python has no PyTorch; name one with PYTHON=" >&2; exit 1; }
case " $* " in
  *" --device cpu "*) ;;
  *) holds 'torch.cuda.is_available()' ||
       { echo "bench: $python's PyTorch finds no GPU" >&2; exit 1; } ;;
esac
exec "$python" bench/against_torch_cuda.py "$@"
