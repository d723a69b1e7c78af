#include "canzona/model/head.h"

#include <algorithm>
#include <cmath>

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

template <class Real>
Linear<Real> Head<Real>::linear() const {
  return {tools_.engine, tools_.weights, tensors_.head, tools_.sizes.vocab,
          tools_.sizes.hidden};
}

template <class Real>
template <class Work>
void Head<Real>::each_chunk(Real* logits, const Work& work) const {
  const DecoderSizes& sizes = tools_.sizes;
  Real* place = logits == nullptr ? tools_.space.logits : logits;
  for (int64_t begin = 0; begin < sizes.tokens(); begin += sizes.head_chunk)
    work(Chunk{begin, std::min(sizes.head_chunk, sizes.tokens() - begin),
               place});
}

template <class Real>
void Head<Real>::norm(const Real* x, const Chunk& chunk) const {
  const int64_t offset = chunk.begin * tools_.sizes.hidden;
  ops<Real>().norm(tools_.space.normed + offset, x + offset,
                   tools_.weights.parameter(tensors_.norm), chunk.count,
                   tools_.sizes.hidden, tools_.epsilon());
}

// Computes the chunk's logits.
template <class Real>
void Head<Real>::fill(const Real* x, const Chunk& chunk) const {
  norm(x, chunk);
  linear().apply(chunk.logits,
                 tools_.space.normed + chunk.begin * tools_.sizes.hidden,
                 chunk.count);
}

template <class Real>
Real* Head<Real>::target(const Chunk& chunk, int64_t i,
                         std::span<const int32_t> sequences) const {
  const int64_t length = tools_.sizes.length;
  const int64_t vocab = tools_.sizes.vocab;
  const int64_t token = chunk.begin + i;
  const int64_t place = token / length * (length + 1) + token % length + 1;
  const int64_t row =
      sequences[static_cast<size_t>(place)] - tools_.tp.rank() * vocab;
  return row >= 0 && row < vocab ? chunk.logits + i * vocab + row : nullptr;
}

template <class Real>
double Head<Real>::losses(const Chunk& chunk,
                          std::span<const int32_t> sequences,
                          int64_t counted) const {
  const Space<Real>& space = tools_.space;
  const int64_t vocab = tools_.sizes.vocab;
  const Real share = 1 / static_cast<Real>(tools_.sizes.tokens());
  Real* targets = space.sums + chunk.count;
  ops<Real>().row_largest(space.largest, chunk.logits, chunk.count, vocab);
  tools_.tp.largest(space.largest, chunk.count, space.ordered,
                    "largest logits");
  for (int64_t i = 0; i < chunk.count; ++i) {
    const Real* logit = target(chunk, i, sequences);
    targets[i] = logit == nullptr ? 0 : *logit;
  }
  ops<Real>().row_exponents(chunk.logits, space.sums, space.largest,
                            chunk.count, vocab);
  tools_.tp.add(space.sums, 2 * chunk.count, "sums of exponents");
  ops<Real>().row_shares(chunk.logits, space.sums, share, chunk.count, vocab);
  double sum = 0;
  for (int64_t i = 0; i < chunk.count; ++i) {
    if (Real* gradient = target(chunk, i, sequences)) *gradient -= share;
    if (chunk.begin + i >= counted) continue;
    sum += std::log(static_cast<double>(space.sums[i])) +
           static_cast<double>(space.largest[i]) -
           static_cast<double>(targets[i]);
  }
  return sum;
}

template <class Real>
double Head<Real>::forward(const Real* x, std::span<const int32_t> sequences,
                           Real* logits, int64_t counted) {
  double sum = 0;
  each_chunk(logits, [&](const Chunk& chunk) {
    fill(x, chunk);
    sum += losses(chunk, sequences, counted);
  });
  return counted > 0 ? sum / static_cast<double>(counted) : 0;
}

template <class Real>
void Head<Real>::logits(const Real* x, Real* logits,
                        const UseLogits<Real>& use) {
  each_chunk(logits, [&](const Chunk& chunk) {
    fill(x, chunk);
    use(chunk.begin,
        {chunk.logits, static_cast<size_t>(chunk.count * tools_.sizes.vocab)});
  });
}

template <class Real>
void Head<Real>::backward(const Real* x, std::span<const int32_t> sequences,
                          Real* logits, Real* gradient, Announce what) {
  const Space<Real>& space = tools_.space;
  const DecoderSizes& sizes = tools_.sizes;
  each_chunk(logits, [&](const Chunk& chunk) {
    const Real* normed = space.normed + chunk.begin * sizes.hidden;
    norm(x, chunk);
    if (logits == nullptr) {
      linear().apply(chunk.logits, normed, chunk.count);
      losses(chunk, sequences, sizes.tokens());
    }
    linear().add_gradient(chunk.logits, normed, chunk.count);
    linear().apply_transposed(space.delta + chunk.begin * sizes.hidden,
                              chunk.logits, chunk.count);
  });
  if (!shared_) announce(tools_.weights, tensors_.head, what);
  const int64_t count = sizes.tokens() * sizes.hidden;
  tools_.tp.add(space.delta, count, "gradient of the head");
  std::fill_n(gradient, count, Real{0});
  ops<Real>().norm_backward(gradient, tools_.weights.gradient(tensors_.norm), x,
                            tools_.weights.parameter(tensors_.norm),
                            space.delta, sizes.tokens(), sizes.hidden,
                            tools_.epsilon());
  announce(tools_.weights, tensors_.norm, what);
}

template class Head<float>;
template class Head<double>;

}  // namespace canzona
