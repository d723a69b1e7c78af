#include "canzona/plan/predict/state_bytes.h"

namespace canzona {

const StateBytes& StateBytesTable::of(MatrixShape shape) {
  const auto it = known_.find(shape);
  if (it != known_.end()) return it->second;
  StateBytes bytes;
  for (const StateFact& state : rule_.states(shape)) {
    int64_t& sum =
        state.lives == Lives::kWithShard ? bytes.with_shard : bytes.with_owner;
    sum = checked_add(sum, state.bytes().value(), "bytes of states");
  }
  return known_.emplace(shape, bytes).first->second;
}

}  // namespace canzona
