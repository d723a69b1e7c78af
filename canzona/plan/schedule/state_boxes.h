// The state that a rank keeps, by name: every logical tensor as boxes, each
// with its place in the rank's memory.
//
//   for (const StateBox& box : state_boxes(part, rank, books)) …
//
// A logical tensor has a name and a global shape that no plan changes:
//   model/<tensor>           weights in fp32
//   optim/<state>/<matrix>   a state of the rule
// Copies of weights that other ranks update are not state, since they are sent
// after every step; everything that a rank holds of a frozen tensor is. A box
// is `count` elements from `first` on in every dimension, contiguous in memory
// and row-major. Several ranks may keep the same elements; exactly one of them
// *gives* each element if a tensor is needed once. Made from the plan alone; no
// memory is touched.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/schedule/updates.h"

namespace canzona {

// The flat buffers of a rank that hold state.
enum class StateBuffer {
  kParameters,  // used by forward and backward: fp32 or bf16
  kMasters,     // fp32 weights, if parameters are bf16
  kStates
};

struct StateBox {
  std::string state;  // of the rule; "": weights
  std::string owner;  // the tensor's or the matrix's name
  std::vector<int64_t> shape;
  std::vector<int64_t> first;
  std::vector<int64_t> count;
  StateBuffer buffer = StateBuffer::kParameters;
  int64_t at = 0;         // element of the buffer
  int64_t parameter = 0;  // of masters: the first element of their parameters
  int64_t elements = 0;
  bool given = false;  // by this rank, among those that keep it

  std::string name() const;  // "model/layers.0.q", "optim/momentum/layers.0.q"
};

// The tables of a rank's part of a plan.
struct RankBooks {
  const Coordinates& at;  // in the grid
  const RankLayout& layout;
  const Kept& kept;
  const UpdatePlan& updates;
};

// `rank` is a rank of the part. Returns weights, then states, in the order in
// which the rank keeps them.
std::vector<StateBox> state_boxes(const PlanPart& part, int32_t rank,
                                  const RankBooks& books);

// Splits a run of a tensor's tp shard into rectangles of the tensor, in order;
// each is contiguous in the shard.
std::vector<Rectangle> shard_rectangles(const Tensor& tensor, int32_t tp,
                                        int32_t t, const Extent& in_shard);

}  // namespace canzona
