#!/bin/sh
# check_layers.sh accepts right arrows and refuses wrong ones.
set -u
check=$(cd "$(dirname "$0")" && pwd)/check_layers.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0

# expect <0|1> <file> <line>: a tree of this one file passes (0) or not (1).
expect() {
  rm -rf "$folder/tree"
  mkdir -p "$folder/tree/$(dirname "$2")"
  echo "$3" >"$folder/tree/$2"
  sh "$check" "$folder/tree" >"$folder/output"
  got=$?
  if [ "$got" -ne "$1" ]; then
    echo "$2 with $3: expected exit $1, got $got"
    cat "$folder/output"
    status=1
  fi
}

expect 0 canzona/base/a.h '#include <string>'
expect 0 canzona/base/a.h '#include <nlohmann/json.hpp>'
expect 0 canzona/comm/thread/a.cc '#include "canzona/base/text.h"'
expect 0 canzona/plan/a.cc '#include "canzona/shapes/tensor.h"'
expect 0 canzona/plan/strategies/a.cc '#include "canzona/rules/facts.h"'
expect 0 canzona/plan/a_test.cc '#include <random>'
expect 0 canzona/sim/a.cc '#include "canzona/plan/predict/predict.h"'
expect 0 canzona/report/a.cc '#include <fmt/format.h>'
expect 0 cli/main.cc '#include "cli/version.h"'
expect 0 tests/conformance/a.cc '#include "canzona/shapes/safetensors.h"'
expect 0 canzona/runtime/a.cc '#include "canzona/comm/courier.h"'
expect 0 cli/a.cc '#include "canzona/runtime/engine_wire_ops.h"'
expect 0 canzona/linalg/cuda/a.cu '#include <cuda_runtime.h>'
expect 0 canzona/model/cuda/a.cu '#include <cuda_runtime.h>'
expect 0 canzona/model/cuda/cudnn_a.cc '#include <cudnn.h>'
expect 0 canzona/plan/plan.cc '#include "canzona/plan/mesh.h"'
expect 0 canzona/plan/search/a.cc '#include "canzona/plan/search/b.h"'
expect 0 canzona/plan/search/a.cc '#include "canzona/plan/predict/loads.h"'
expect 0 canzona/plan/make_plan.cc '#include "canzona/plan/json/plan_json.h"'
expect 0 canzona/plan/cost/a_test.cc '#include "canzona/plan/make_plan.h"'
expect 0 canzona/plan/cost/test_a.h '#include "canzona/plan/testing/test_b.h"'

expect 1 canzona/base/a.cc '#include "canzona/plan/plan.h"'
expect 1 canzona/base/a.cc '  #  include   "canzona/plan/plan.h"  // why'
expect 1 canzona/comm/a.cc '#include "canzona/linalg/engine.h"'
expect 1 canzona/plan/a.cc '#include "canzona/comm/communicator.h"'
expect 1 canzona/plan/a.cc '#include "canzona/sim/plan_iteration.h"'
expect 1 canzona/plan/mesh.h '#include "canzona/plan/schedule/pools.h"'
expect 1 canzona/plan/predict/a.h '#include "canzona/plan/search/bundles.h"'
expect 1 canzona/plan/search/a.cc '#include "canzona/plan/micro_groups/modes.h"'
expect 1 canzona/plan/storage/a.cc '#include "canzona/plan/make_plan.h"'
expect 1 canzona/plan/unheard_of/a.cc '#include "canzona/plan/plan.h"'
expect 1 canzona/sim/a.cc '#include "canzona/comm/thread/link_model.h"'
expect 1 canzona/sim/a.cc '#include <chrono>'
expect 1 canzona/rules/muon/a.cc '#include "canzona/shapes/tensor.h"'
expect 1 canzona/shapes/a.cc '#include "canzona/rules/facts.h"'
expect 1 canzona/shapes/a_test.cc '#include "canzona/plan/plan.h"'
expect 1 canzona/plan/a.h '#include "canzona/report/page.h"'
expect 1 canzona/plan/a.cc '#include <thread>'
expect 1 canzona/plan/a.cc '#include <nlohmann/json.hpp>'
expect 1 canzona/plan/a.cc '#include "plan.h"'
expect 1 canzona/shapes/a.cc '#include <fmt/format.h>'
expect 1 canzona/report/a.cc '#include "cli/version.h"'
expect 1 canzona/shapes/a.cc '#include "tests/conformance/fixture.h"'
expect 1 canzona/rules/a.cc '#include <cuda_runtime.h>'
expect 1 canzona/model/a.cc '#include <cuda_runtime.h>'
expect 1 canzona/model/cuda/a.cc '#include <cudnn.h>'
expect 1 cli/a.cc '#include <cublasLt.h>'
expect 1 canzona/linalg/cuda/a.cu '#include "canzona/rules/rule.h"'
expect 1 canzona/linalg/cuda/a.cuh '#include "canzona/rules/rule.h"'
expect 1 canzona/comm/a.cc '#include "canzona/runtime/engine_wire_ops.h"'
expect 1 canzona/runtime/a.cc '#include "canzona/report/page.h"'
expect 1 canzona/unheard_of/a.cc '#include <string>'

expect 0 canzona/plan/a.h 'namespace canzona::plan {'
expect 1 canzona/plan/a.h 'namespace canzona {'
expect 1 canzona/plan/a.h 'namespace canzona::sim {'
expect 0 canzona/base/a.h 'namespace canzona {'

expect 0 canzona/base/environment.h 'return std::getenv(name);'
expect 0 canzona/comm/a.cc 'return environment_variable(name);'
expect 0 canzona/linalg/a_test.cc 'getenv("A");'
expect 1 canzona/linalg/a.cc 'return std::getenv(name);'
expect 1 cli/a.cc '::setenv("A", "b", 1);'
expect 1 canzona/trace/a.cc 'for (char** at = environ; *at; ++at) {}'

exit $status
