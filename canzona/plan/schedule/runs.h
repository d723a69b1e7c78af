// The runs of a bucket: what each home keeps of each slice (zero.h).
//
//   int64_t own = matrix_runs(plan, bucket, slice)[home];
//
// With one place there is one slice, the whole TP plane, and runs are what the
// bucket's cuts say. With several the cuts say how the slices together are
// shared out; each slice follows in proportion.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/plan.h"

namespace canzona {

// Elements of a slice of a bucket's tensors: all of the matrix rule's, all of
// AdamW's.
int64_t matrix_slice(const PlanPart& part, const Bucket& bucket, int32_t slice);
int64_t adamw_slice(const PlanPart& part, const Bucket& bucket, int32_t slice);

// Returns what each home keeps of them; all of it if every home does. Padding
// is counted where the plan pads.
std::vector<int64_t> matrix_runs(const PlanPart& part, const Bucket& bucket,
                                 int32_t slice);
std::vector<int64_t> adamw_runs(const PlanPart& part, const Bucket& bucket,
                                int32_t slice);
// Returns where each home's run of AdamW's elements begins, and the end.
std::vector<int64_t> adamw_slice_cuts(const PlanPart& part,
                                      const Bucket& bucket, int32_t slice);

// Slices that a rank at `place` keeps where they are cut over z homes.
Extent kept_slices(const Mesh& grid, int32_t place, int32_t z);

// The tensors at rest: frozen ones have parameters alone.
enum class Resting { kParameters, kGradients };

// True if both are cut alike and nothing is frozen: then they have the same
// layout and the same messages.
bool lie_alike(const PlanPart& part);

// Elements of a bucket that a rank keeps, by its place: padding included,
// unless it keeps all of several slices, where tensors lie whole.
std::vector<int64_t> kept_elements(const PlanPart& part, const Bucket& bucket,
                                   Resting what);
// All slices of a bucket, padding included: what goes round between ranks.
int64_t message_elements(const PlanPart& part, const Bucket& bucket,
                         Resting what);

// Room on the ranks of a stage for gradients of frozen tensors, one at a time,
// which nobody reads.
int64_t forgotten_elements(const PlanPart& part, int32_t stage);

}  // namespace canzona
