// What a rank does with a matrix of its own whose strips come and leave one by
// one (plan/schedule/strip_exchange.h), in the first and in the last round:
//
//   strips.sum(round, strip, slot);        // it has come to the slot
//   strips.iterate(round);                 // all have
//   strips.multiply(round, strip, slot);   // it may leave the slot
//
// Between the first and the last of these the engine's arena has a scope open,
// within which the rank's other matrices are transformed.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "canzona/rules/strip_transform.h"
#include "canzona/runtime/rank.h"

namespace canzona {

class StripUpdate {
 public:
  // UsageError if the rank's engine cannot compute a matrix by strips.
  explicit StripUpdate(Rank& rank);

  void sum(size_t round, int strip, float* slot);
  void iterate(size_t round);
  void multiply(size_t round, int strip, float* slot);

 private:
  // The matrix of a round; none: no transform.
  struct OfRound {
    const StripMatrix* planned = nullptr;
    const std::vector<int64_t>* dims = nullptr;
    std::unique_ptr<StripTransform> transform;
  };

  void begin(OfRound& of);

  Rank& rank_;
  std::vector<OfRound> rounds_;
  // Of the matrix at work.
  std::optional<Arena::Scope> scope_;
  Run matrix_{};         // put together, and then its update
  size_t num_left_ = 0;  // strips that are not multiplied yet
};

}  // namespace canzona
