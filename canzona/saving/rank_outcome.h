// A RankOutcome says how something ended on a rank, so that all ranks can learn
// it: only one rank handles files, but every rank ends with the same error and
// exit status.
//
//   const RankOutcome own = outcome_of([&] { write(…); });
//   require_all(world, own);     // throws the same on every rank, or on none
//
// These are plain values.
#pragma once

#include <functional>
#include <string>

#include "canzona/checkpoint/boxes.h"
#include "canzona/comm/communicator.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

// The tensors of a checkpoint in which a runtime's state is saved. Internal to
// this room.
inline LogicalTensor tensor_of(const StateBox& box) {
  return {box.name(), StoredType::kF32, box.shape};
}
inline TensorBox box_of(const StateBox& box) { return {box.first, box.count}; }

// The number of steps done, without those that were skipped.
inline LogicalTensor steps_tensor() {
  return {"run/steps_done", StoredType::kI64, {}};
}

struct RankOutcome {
  enum class Kind : int32_t {
    kDone,
    kUsage,
    kRefused,
    kStorage,
    kNumerical,
    kOther
  };
  Kind kind = Kind::kDone;
  std::string text = {};  // of the error

  bool failed() const { return kind != Kind::kDone; }
};

// Catches what `body` throws except PeerLost, because a rank that lost a peer
// cannot tell the others.
RankOutcome outcome_of(const std::function<void()>& body);

// Returns the outcome of the first rank that failed, or kDone. All ranks must
// call; texts are truncated to some hundred bytes.
RankOutcome first_failure(Communicator& world, const RankOutcome& own,
                          const Call& call = {.label = "how it ended"});

// Throws the error that the outcome was made from, if it failed.
void throw_failure(const RankOutcome& outcome);

// Combines the two above.
inline void require_all(Communicator& world, const RankOutcome& own) {
  throw_failure(first_failure(world, own));
}
// Calls `body` on rank 0 only; all ranks throw what it throws.
void at_first(Communicator& world, const std::function<void()>& body);

}  // namespace canzona
