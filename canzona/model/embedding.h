// Rows of the embedding's table for the tokens of a micro-batch.
//
//   embedding.forward(sequences, x);
//   embedding.backward(sequences, gradient, what);
//
// Under tp a rank has some rows of the vocabulary; the ranks' are added up.
// One thread; nothing is allocated.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/model/tools.h"

namespace canzona {

template <class Real>
class Embedding {
 public:
  Embedding(const Tools<Real>& tools, int32_t tensor)
      : tools_(tools), tensor_(tensor) {}

  void forward(std::span<const int32_t> sequences, Real* x);
  void backward(std::span<const int32_t> sequences, const Real* gradient,
                Announce what);

 private:
  // This rank's row of the token, or one outside of its rows.
  int64_t row_of(std::span<const int32_t> sequences, int64_t token) const;

  Tools<Real> tools_;
  int32_t tensor_;
};

}  // namespace canzona
