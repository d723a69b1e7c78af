#!/bin/sh
# run.sh <build folder> <scratch folder> <compiler>
#
# Installs a build into an empty prefix, then configures, builds and runs the
# programs beside this script against it.
set -eu
build=$1
scratch=$2/install
compiler=$3
here=$(cd "$(dirname "$0")" && pwd)

rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log"
sh "$here/headers.sh" "$scratch/prefix/include" "$compiler"
cmake -S "$here" -B "$scratch/consumer" \
  -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_CXX_COMPILER="$compiler"
# The package must be the one just installed, not another on this machine.
grep "canzona_DIR:PATH=$scratch/prefix/" "$scratch/consumer/CMakeCache.txt"
cmake --build "$scratch/consumer"
"$scratch/consumer/consumer_plan"
if [ -x "$scratch/consumer/consumer_two_ranks" ]; then
  "$scratch/consumer/consumer_two_ranks" "$scratch/checkpoints"
fi
