// Checks on a run while it trains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/runtime/runtime.h"

namespace canzona::train {

// Detects steps whose training loss stands out from the ones before.
//
//   if (const auto over = spike_over(state.recent_losses, loss, 10))
//     state.spikes.add(step, loss, *over);
//   remember_loss(loss, state.recent_losses);
//
// Only the losses before a step decide whether it is a spike. They are part of
// the run's state, so a resumed run decides as if it had not been interrupted.

// The number of losses that a step is compared with, at most and at least.
inline constexpr size_t kMostRecentLosses = 16;
inline constexpr size_t kLeastRecentLosses = 4;

// The spikes of a run: how many, and the last one.
struct LossSpikes {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  int64_t count = 0;
  int64_t step = -1;  // -1: there was none
  double loss = kNone;
  double over = kNone;  // the median of the losses before it

  void add(int64_t at, double its_loss, double median) {
    *this = {count + 1, at, its_loss, median};
  }
};

// Returns the median of the recent losses (the lower one if their number is
// even) if `loss` is more than `factor` times that. Returns nothing otherwise,
// if there are too few losses, or if the factor is 0.
std::optional<double> spike_over(const std::vector<double>& recent, double loss,
                                 double factor);

// Appends a loss if it is finite, and drops the oldest if there are too many.
void remember_loss(double loss, std::vector<double>& recent);

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

// Compares what the bits of the ranks' devices depend on (Stage::describe()):
// UsageError on all of them names two that differ. All ranks must call it.
void require_same_device(const std::string& own, Communicator& world);

}  // namespace canzona::train
