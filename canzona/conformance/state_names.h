// Where a rule keeps what a fixture calls by a name of its own: factor_left of
// block 3 is a matrix in a stack of states.
//
//   auto names = make_state_names(fixture, *rule, dims);
//   auto view = names->find(-1, "factor_left");
//   std::vector<double> factor = gather(memory, *view);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/conformance/tensor_memory.h"
#include "canzona/rules/rule.h"

namespace canzona {

// A part of one state: element (i, j, …) lies at offset + i·strides[0] + ….
struct StateView {
  size_t state = 0;  // place in the list of states
  int64_t offset = 0;
  Dims dims;
  Dims strides;
};

// The elements in row-major order.
std::vector<double> gather(const TensorMemory& memory, const StateView& view);

class StateNames {
 public:
  virtual ~StateNames() = default;
  // Nothing if the rule keeps nothing like it. A tensor that is not cut has
  // one block, number 0.
  virtual std::optional<StateView> find(int64_t block,
                                        std::string_view what) const = 0;
  virtual int64_t num_blocks() const { return 1; }
  virtual int order() const { return 0; }  // axes of a block
  // "left", "right" or a number.
  virtual std::string axis_name(int axis) const;
};

std::unique_ptr<StateNames> make_state_names(const Rule& rule,
                                             const Dims& dims);

}  // namespace canzona
