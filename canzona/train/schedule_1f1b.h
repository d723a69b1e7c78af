// The order in which a pipeline stage works on its micro-batches: one forward,
// one backward (1F1B). A stage runs ahead by as many forwards as there are
// stages behind it, then takes turns, so that it never holds the activations
// of more micro-batches than that plus one.
//
//   for (const StageTask& task : schedule_1f1b(stage, stages, 8)) …
//
// Stage 1 of 3 with 4 micro-batches: F0 F1 B0 F2 B1 F3 B2 B3.
#pragma once

#include <cstdint>
#include <vector>

namespace canzona {

struct StageTask {
  bool forward = true;
  int64_t micro_batch = 0;
  friend bool operator==(const StageTask&, const StageTask&) = default;
};

std::vector<StageTask> schedule_1f1b(int64_t stage, int64_t num_stages,
                                     int64_t num_micro_batches);
// The most micro-batches between forward and backward at once.
int64_t most_in_flight(int64_t stage, int64_t num_stages,
                       int64_t num_micro_batches);

}  // namespace canzona
