// Sums and maxima over the ranks that share a layer; nothing where there is
// one. The time is counted.
//
//   TpGroup<float> tp(parallel.tp);
//   tp.add(delta, tokens * hidden, "attention");
//
// One thread. Nothing is allocated after construction.
#pragma once

#include <cstdint>
#include <string_view>

#include "canzona/comm/communicator.h"

namespace canzona {

template <class Real>
class TpGroup {
 public:
  // UsageError for several ranks of fp64: there are only fp32 sums.
  explicit TpGroup(Communicator* ranks);

  int size() const { return ranks_ == nullptr ? 1 : ranks_->size(); }
  int rank() const { return ranks_ == nullptr ? 0 : ranks_->rank(); }
  double seconds() const { return seconds_; }

  void add(Real* data, int64_t count, std::string_view label);
  // `scratch` is of `count` numbers.
  void largest(Real* data, int64_t count, int64_t* scratch,
               std::string_view label);

 private:
  void reduce(Reduction reduction, void* data, int64_t bytes,
              std::string_view label);

  Communicator* ranks_;
  double seconds_ = 0;
};

}  // namespace canzona
