// The combinatorial core of planning, free of tensors and meshes: sizes to be
// dealt to equal ranks so that the largest load (the makespan) is small.
#pragma once

#include <cstdint>

namespace canzona {

// `count` equal items. Lists of these are sorted by size, largest first, with
// positive sizes, each once.
struct SizeCount {
  int64_t size = 0;
  int64_t count = 0;
  friend bool operator==(const SizeCount&, const SizeCount&) = default;
};

}  // namespace canzona
