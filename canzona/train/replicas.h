// Checks that ranks that keep the same parameters keep the same bits: a bit of
// memory that turned, or a rank that computed something else, shows here before
// it shows in a loss.
//
//   if (const std::optional<Drift> drift = find_drift(runtime, world))
//     throw NumericalError(drift->text());
//
// All ranks call it, between steps, and get the same answer. It finds what
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
  int32_t rank = 0;   // the first that differs from most of those that keep it
  int32_t other = 0;  // the first of most
  int64_t agreeing = 0;  // ranks that keep what `other` keeps
  int64_t keeping = 0;   // ranks that should all keep the same

  // "rank 3 holds other values of model.norm.weight than rank 0 and 2 more"
  std::string text() const;
};

std::optional<Drift> find_drift(Runtime& runtime, Communicator& world);

}  // namespace canzona
