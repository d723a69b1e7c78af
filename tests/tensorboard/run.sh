#!/bin/sh
# run.sh <make_events> <folder> <environment>
#
# Reads our events with the tensorboard package, which goes into <environment>
# where python3 has none. Exits with 77, which ctest counts as skipped, where it
# cannot be had.
set -u
make_events=${1:?usage: run.sh <make_events> <folder> <environment>}
folder=${2:?usage: run.sh <make_events> <folder> <environment>}
environment=${3:?usage: run.sh <make_events> <folder> <environment>}
here=$(cd "$(dirname "$0")" && pwd)

skip() {
  echo "skipped: $1"
  exit 77
}
has_tensorboard() {
  "$1" -c 'import tensorboard.backend.event_processing.event_accumulator' \
    2>/dev/null
}

command -v python3 >/dev/null || skip "no python3"
python=python3
if ! has_tensorboard "$python"; then
  python=$environment/bin/python
  if ! has_tensorboard "$python"; then
    python3 -m venv "$environment" || skip "python3 has no venv"
    "$python" -m pip install -q tensorboard==2.21.0 ||
      skip "tensorboard cannot be installed (no network?)"
  fi
fi

rm -rf "$folder"
mkdir -p "$folder" || exit 1
"$make_events" "$folder" || exit 1
"$python" "$here/read_events.py" "$folder"
