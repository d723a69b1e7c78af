#include "canzona/model/embedding.h"

#include <algorithm>

#include "canzona/model/ops/table.h"

namespace canzona {

template <class Real>
int64_t Embedding<Real>::row_of(std::span<const int32_t> sequences,
                                int64_t token) const {
  const int64_t length = tools_.sizes.length;
  const int64_t place = token / length * (length + 1) + token % length;
  return sequences[static_cast<size_t>(place)] -
         tools_.tp.rank() * tools_.sizes.vocab;
}

template <class Real>
void Embedding<Real>::forward(std::span<const int32_t> sequences, Real* x) {
  const DecoderSizes& sizes = tools_.sizes;
  const Real* table = tools_.weights.parameter(tensor_);
  const int64_t hidden = sizes.hidden;
  for (int64_t t = 0; t < sizes.tokens(); ++t) {
    const int64_t row = row_of(sequences, t);
    if (row >= 0 && row < sizes.vocab)
      std::copy_n(table + row * hidden, hidden, x + t * hidden);
    else
      std::fill_n(x + t * hidden, hidden, Real{0});
  }
  tools_.tp.add(x, sizes.tokens() * hidden, "embedding");
}

template <class Real>
void Embedding<Real>::backward(std::span<const int32_t> sequences,
                               const Real* gradient, Announce what) {
  const DecoderSizes& sizes = tools_.sizes;
  Real* table = tools_.weights.gradient(tensor_);
  const int64_t hidden = sizes.hidden;
  for (int64_t t = 0; t < sizes.tokens(); ++t) {
    const int64_t row = row_of(sequences, t);
    if (row < 0 || row >= sizes.vocab) continue;
    Real* sum = table + row * hidden;
    ops<Real>().add(sum, sum, gradient + t * hidden, hidden);
  }
  announce(tools_.weights, tensor_, what);
}

template class Embedding<float>;
template class Embedding<double>;

}  // namespace canzona
