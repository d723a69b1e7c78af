// A RankOutcome is how something ended on a rank, told to all: files are one
// rank's matter, but every rank ends with the same error and the same exit
// status.
//
//   const RankOutcome own = outcome_of([&] { write(…); });
//   require_all(world, own);     // throws alike on every rank, or on none
//
// Values.
#pragma once

#include <functional>
#include <string>

#include "canzona/comm/communicator.h"

namespace canzona {

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

// Catches what `body` throws, but for PeerLost: whoever lost a peer has nobody
// left to tell.
RankOutcome outcome_of(const std::function<void()>& body);

// The outcome of the first rank that failed, or kDone. All ranks call; texts
// are cut at some hundred bytes.
RankOutcome first_failure(Communicator& world, const RankOutcome& own,
                          const Call& call = {.label = "how it ended"});

// The error that the outcome was made from, if it failed.
void throw_failure(const RankOutcome& outcome);

// The two above.
inline void require_all(Communicator& world, const RankOutcome& own) {
  throw_failure(first_failure(world, own));
}
// `body` on rank 0 alone; all ranks throw what it throws.
void at_first(Communicator& world, const std::function<void()>& body);

}  // namespace canzona
