// Checks that replicas of the same parameters have the same bits. A flipped bit
// in memory, or a rank that computed something else, shows here before it shows
// in the loss.
//
//   if (const std::optional<Drift> drift = find_drift(runtime, world))
//     throw NumericalError(drift->text());
//
// All ranks must call it, between steps, and get the same answer. It finds what
// differs at that moment: the owner's parameters replace those of the others in
// every step, unless every rank computes them (strategy `replicated`) or nobody
// does (frozen tensors).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "canzona/comm/communicator.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

struct Drift {
  std::string tensor;
  int32_t rank = 0;      // the first that differs from the majority
  int32_t other = 0;     // the first of the majority
  int64_t agreeing = 0;  // ranks that have the same as `other`
  int64_t keeping = 0;   // ranks that should all have the same

  // "rank 3 holds other values of model.norm.weight than rank 0 and 2 more"
  std::string text() const;
};

std::optional<Drift> find_drift(Runtime& runtime, Communicator& world);

}  // namespace canzona
