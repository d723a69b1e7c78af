// Compares two checkpoints tensor by tensor, however either was cut.
//
//   CheckpointDifference d = compare_checkpoints(a, b, 2);
//   if (d.equal()) …
//
// Needs memory for two batches of some ten MiB. Throws like
// CheckpointReader::load().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/checkpoint/reader.h"

namespace canzona {

struct TensorDifference {
  std::string name;
  std::string what;       // "" if type and shape are equal
  int64_t elements = 0;   // of the tensor
  int64_t different = 0;  // elements whose bits differ
  double largest = 0;     // largest difference; not finite if one is
};

struct CheckpointDifference {
  std::vector<std::string> only_first;
  std::vector<std::string> only_second;
  std::vector<TensorDifference> different;  // by name
  int64_t num_equal = 0;

  bool equal() const {
    return only_first.empty() && only_second.empty() && different.empty();
  }
};

CheckpointDifference compare_checkpoints(const CheckpointReader& first,
                                         const CheckpointReader& second,
                                         int threads);

}  // namespace canzona
