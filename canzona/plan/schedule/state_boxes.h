// State boxes are what a rank keeps of a run's state, by name: every logical
// tensor as boxes of it, with the place of each in the rank's memory.
//
//   for (const StateBox& box : state_boxes(part, rank, books)) …
//
// A logical tensor has a name and a global shape that no plan changes:
//   model/<tensor>           weights in fp32
//   optim/<state>/<matrix>   a state of the rule
// Copies of weights that others update are no state: they are sent after every
// step. All that a rank holds of a frozen tensor is. A box is `count` elements
// from `first` on in every dimension, which lie in memory as one run,
// row-major. Several ranks may keep the same elements; for each element exactly
// one of them *gives* it where a tensor is wanted once. Made from the plan
// alone; no memory is touched.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/schedule/updates.h"

namespace canzona {

// The flat buffers of a rank that hold state.
enum class StateBuffer {
  kParameters,  // what forward and backward use: fp32, or bf16
  kMasters,     // fp32 weights, where parameters are bf16
  kStates
};

struct StateBox {
  std::string state;  // of the rule; "": weights
  std::string owner;  // the tensor's or the matrix's name
  std::vector<int64_t> shape;
  std::vector<int64_t> first;
  std::vector<int64_t> count;
  StateBuffer buffer = StateBuffer::kParameters;
  int64_t at = 0;  // element of the buffer
  int64_t elements = 0;
  bool given = false;  // by this rank, of those that keep the same

  std::string name() const;  // "model/layers.0.q", "optim/momentum/layers.0.q"
};

// The tables of a rank's part of a plan.
struct RankBooks {
  const Coordinates& at;  // in the grid
  const RankLayout& layout;
  const Kept& kept;
  const UpdatePlan& updates;
};

// `rank` is one of the part's. In the order of weights, then states, as the
// rank keeps them.
std::vector<StateBox> state_boxes(const PlanPart& part, int32_t rank,
                                  const RankBooks& books);

// A run of a tensor's tp shard as rectangles of the tensor, in order; each is
// one run of the shard.
std::vector<Rectangle> shard_rectangles(const Tensor& tensor, int32_t tp,
                                        int32_t t, const Extent& in_shard);

}  // namespace canzona
