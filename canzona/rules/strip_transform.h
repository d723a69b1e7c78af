// The transform of one matrix whose strips (strips.h) come one by one, and
// whose update leaves so.
//
//   auto transform = rule.by_strips(engine, {1024, 8192});
//   transform->begin(arena);
//   for (int s = 0; s < strips; ++s)
//     transform->sum(s, matrix);         // strip s of it is there
//   transform->iterate();                // all strips are
//   for (int s = 0; s < strips; ++s)
//     transform->multiply(s, update);    // strip s of it is there then
//
// The update has the bits that Rule::transform gives. Matrix and update are
// memory of the engine, rows one after another, like those of a batch of one;
// the matrix stays until iterate has returned. One thread at a time uses a
// transform; it may be used again for each step, without allocating.
#pragma once

#include "canzona/linalg/memory.h"
#include "canzona/linalg/stages.h"

namespace canzona {

class StripTransform {
 public:
  virtual ~StripTransform() = default;

  // Takes memory for one matrix, which is used until the last strip is
  // multiplied. Requires an open scope of the arena.
  virtual void begin(Arena& arena) = 0;
  // Strips come in any order.
  virtual void sum(int strip, ConstRun matrix) = 0;
  virtual void iterate() = 0;
  virtual void multiply(int strip, Run update) = 0;
};

}  // namespace canzona
