#include "canzona/model/experts.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "canzona/base/check.h"

namespace canzona::model {
namespace {

template <class Real>
void softmax(Real* row, int64_t count) {
  const Real largest = *std::max_element(row, row + count);
  Real sum = 0;
  for (int64_t e = 0; e < count; ++e) {
    row[e] = std::exp(row[e] - largest);
    sum += row[e];
  }
  const Real scale = 1 / sum;
  for (int64_t e = 0; e < count; ++e) row[e] *= scale;
}

// Returns the most likely expert that is not chosen yet.
template <class Real>
int32_t best_left(const Real* row, int64_t count, const int32_t* chosen,
                  const int32_t* chosen_end) {
  int64_t best = -1;
  for (int64_t e = 0; e < count; ++e) {
    if (best >= 0 && !(row[e] > row[best])) continue;
    if (std::find(chosen, chosen_end, e) == chosen_end) best = e;
  }
  return static_cast<int32_t>(best);
}

template <class Real>
void choose(const ExpertSizes& sizes, const Real* row, int32_t* chosen,
            Real* weights) {
  Real sum = 0;
  for (int64_t k = 0; k < sizes.choices; ++k) {
    chosen[k] = best_left(row, sizes.experts, chosen, chosen + k);
    weights[k] = row[chosen[k]];
    sum += weights[k];
  }
  for (int64_t k = 0; k < sizes.choices; ++k) weights[k] /= sum;
}

template <class Real>
void sort_pairs(const ExpertSizes& sizes, const Routing<Real>& routing) {
  std::fill_n(routing.counts, sizes.experts, 0);
  for (int64_t p = 0; p < sizes.pairs(); ++p)
    ++routing.counts[routing.chosen[p]];
  int64_t begin = 0;
  for (int64_t e = 0; e < sizes.experts; ++e) {
    routing.cursors[e] = begin;
    begin += routing.counts[e];
  }
  for (int64_t p = 0; p < sizes.pairs(); ++p)
    routing.places[p] = routing.cursors[routing.chosen[p]]++;
}

// Returns Σ_e f_e · P_e of one sequence; leaves f in `shares`.
template <class Real>
double balance_of(const ExpertSizes& sizes, const Real* probabilities,
                  const int32_t* chosen, double* shares) {
  const int64_t pairs = sizes.length * sizes.choices;
  std::fill_n(shares, sizes.experts, 0.0);
  for (int64_t p = 0; p < pairs; ++p) shares[chosen[p]] += 1;
  double sum = 0;
  for (int64_t e = 0; e < sizes.experts; ++e) {
    shares[e] /= static_cast<double>(pairs);
    double mean = 0;
    for (int64_t t = 0; t < sizes.length; ++t)
      mean += static_cast<double>(probabilities[t * sizes.experts + e]);
    sum += shares[e] * mean / static_cast<double>(sizes.length);
  }
  return sum;
}

template <class Real>
void measure_balance(const ExpertSizes& sizes, const Routing<Real>& routing) {
  double sum = 0;
  for (int64_t s = 0; s < sizes.sequences(); ++s) {
    const int64_t first = s * sizes.length;
    sum += balance_of(sizes, routing.probabilities + first * sizes.experts,
                      routing.chosen + first * sizes.choices,
                      routing.shares + s * sizes.experts);
  }
  *routing.balance = static_cast<double>(sizes.experts) * sum /
                     static_cast<double>(sizes.sequences());
}

// Adds the gradient that comes through w_k = p_k / Σ p.
template <class Real>
void add_weight_gradient(const ExpertSizes& sizes, const Real* row,
                         const int32_t* chosen, const Real* weights,
                         const Real* dweights, Real* gradient) {
  Real sum = 0;
  Real mean = 0;
  for (int64_t k = 0; k < sizes.choices; ++k) {
    sum += row[chosen[k]];
    mean += weights[k] * dweights[k];
  }
  for (int64_t k = 0; k < sizes.choices; ++k)
    gradient[chosen[k]] += (dweights[k] - mean) / sum;
}

// Converts the gradient of a softmax's output to that of its input.
template <class Real>
void softmax_backward(const Real* row, Real* gradient, int64_t count) {
  Real mean = 0;
  for (int64_t e = 0; e < count; ++e) mean += row[e] * gradient[e];
  for (int64_t e = 0; e < count; ++e)
    gradient[e] = row[e] * (gradient[e] - mean);
}

}  // namespace

template <class Real>
Routing<Real> take_routing(Cutter& cutter, const ExpertSizes& sizes) {
  Routing<Real> routing;
  routing.probabilities = cutter.take<Real>(sizes.tokens * sizes.experts);
  routing.chosen = cutter.take<int32_t>(sizes.pairs());
  routing.weights = cutter.take<Real>(sizes.pairs());
  routing.places = cutter.take<int64_t>(sizes.pairs());
  routing.counts = cutter.take<int64_t>(sizes.experts);
  routing.cursors = cutter.take<int64_t>(sizes.experts);
  routing.shares = cutter.take<double>(sizes.sequences() * sizes.experts);
  routing.balance = cutter.take<double>(1);
  return routing;
}

template <class Real>
void route(const ExpertSizes& sizes, const Routing<Real>& routing) {
  for (int64_t t = 0; t < sizes.tokens; ++t) {
    Real* row = routing.probabilities + t * sizes.experts;
    softmax(row, sizes.experts);
    choose(sizes, row, routing.chosen + t * sizes.choices,
           routing.weights + t * sizes.choices);
  }
  sort_pairs(sizes, routing);
  measure_balance(sizes, routing);
}

template <class Real>
void route_backward(const ExpertSizes& sizes, double coefficient,
                    const Routing<Real>& routing, const Real* dweights,
                    Real* dlogits) {
  const double balance = coefficient * static_cast<double>(sizes.experts) /
                         static_cast<double>(sizes.tokens);
  for (int64_t t = 0; t < sizes.tokens; ++t) {
    const Real* row = routing.probabilities + t * sizes.experts;
    const double* shares = routing.shares + t / sizes.length * sizes.experts;
    Real* gradient = dlogits + t * sizes.experts;
    for (int64_t e = 0; e < sizes.experts; ++e)
      gradient[e] = static_cast<Real>(balance * shares[e]);
    const int64_t first = t * sizes.choices;
    add_weight_gradient(sizes, row, routing.chosen + first,
                        routing.weights + first, dweights + first, gradient);
    softmax_backward(row, gradient, sizes.experts);
  }
}

template Routing<float> take_routing<float>(Cutter&, const ExpertSizes&);
template Routing<double> take_routing<double>(Cutter&, const ExpertSizes&);
template void route<float>(const ExpertSizes&, const Routing<float>&);
template void route<double>(const ExpertSizes&, const Routing<double>&);
template void route_backward<float>(const ExpertSizes&, double,
                                    const Routing<float>&, const float*,
                                    float*);
template void route_backward<double>(const ExpertSizes&, double,
                                     const Routing<double>&, const double*,
                                     double*);

PairExchange::PairExchange(const ExpertSizes& sizes, Communicator* ep)
    : sizes_(sizes),
      ep_(sizes.ranks == 1 ? nullptr : ep),
      arrivals_(static_cast<size_t>(sizes.experts)),
      cursors_(static_cast<size_t>(sizes.local())),
      rows_(static_cast<size_t>(sizes.local())) {
  const auto ranks = static_cast<size_t>(sizes.ranks);
  for (Runs* runs : {&away_, &arrived_})
    *runs = {std::vector<int64_t>(ranks), std::vector<int64_t>(ranks),
             std::vector<int64_t>(ranks)};
}

void PairExchange::Runs::set_width(int64_t element_bytes) {
  int64_t offset = 0;
  for (size_t r = 0; r < elements.size(); ++r) {
    bytes[r] = elements[r] * element_bytes;
    offsets[r] = offset;
    offset += bytes[r];
  }
}

void PairExchange::exchange(const std::byte* from, Runs& out, std::byte* to,
                            Runs& in, int64_t element_bytes,
                            std::string_view label) {
  const auto start = std::chrono::steady_clock::now();
  out.set_width(element_bytes);
  in.set_width(element_bytes);
  ep_->all_to_all_v(
      {{from, static_cast<size_t>(out.total_bytes())}, out.bytes, out.offsets},
      {{to, static_cast<size_t>(in.total_bytes())}, in.bytes, in.offsets},
      {.label = label});
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  seconds_ += time.count();
}

void PairExchange::tell_counts(const int64_t* counts, int64_t* arrivals) {
  if (ep_ == nullptr) {
    std::copy_n(counts, sizes_.experts, arrivals);
  } else {
    std::ranges::fill(away_.elements, sizes_.local());
    std::ranges::fill(arrived_.elements, sizes_.local());
    exchange(reinterpret_cast<const std::byte*>(counts), away_,
             reinterpret_cast<std::byte*>(arrivals), arrived_, sizeof(int64_t),
             "counts of pairs");
  }
  use_counts(counts, arrivals);
}

void PairExchange::use_counts(const int64_t* counts, const int64_t* arrivals) {
  const int64_t local = sizes_.local();
  std::copy_n(arrivals, sizes_.experts, arrivals_.begin());
  std::ranges::fill(rows_, Rows{});
  for (int64_t r = 0; r < sizes_.ranks; ++r) {
    const int64_t* theirs = arrivals + r * local;
    const auto place = static_cast<size_t>(r);
    away_.elements[place] = std::accumulate(
        counts + r * local, counts + (r + 1) * local, int64_t{0});
    arrived_.elements[place] =
        std::accumulate(theirs, theirs + local, int64_t{0});
    for (int64_t e = 0; e < local; ++e)
      rows_[static_cast<size_t>(e)].count += theirs[e];
  }
  int64_t begin = 0;
  for (Rows& rows : rows_) {
    rows.begin = begin;
    begin += rows.count;
  }
  CANZONA_CHECK(begin <= sizes_.most_rows(), begin, " rows, at most ",
                sizes_.most_rows(), " have a place");
}

template <class Visit>
void PairExchange::for_each_arrival(const Visit& visit) {
  std::ranges::transform(rows_, cursors_.begin(), &Rows::begin);
  int64_t by_rank = 0;
  for (size_t i = 0; i < arrivals_.size(); ++i) {
    int64_t& by_expert = cursors_[i % cursors_.size()];
    visit(by_rank, by_expert, arrivals_[i]);
    by_rank += arrivals_[i];
    by_expert += arrivals_[i];
  }
}

template <class Real>
void PairExchange::to_experts(const Real* pairs, Real* rows, int64_t width,
                              Real* spare) {
  if (ep_ == nullptr) {
    CANZONA_CHECK(pairs == rows, "without other ranks rows are the pairs");
    return;
  }
  const int64_t row_bytes = width * static_cast<int64_t>(sizeof(Real));
  exchange(reinterpret_cast<const std::byte*>(pairs), away_,
           reinterpret_cast<std::byte*>(spare), arrived_, row_bytes,
           "pairs to experts");
  for_each_arrival([&](int64_t from, int64_t to, int64_t count) {
    std::copy_n(spare + from * width, count * width, rows + to * width);
  });
}

template <class Real>
void PairExchange::to_tokens(const Real* rows, Real* pairs, int64_t width,
                             Real* spare) {
  if (ep_ == nullptr) {
    CANZONA_CHECK(pairs == rows, "without other ranks rows are the pairs");
    return;
  }
  const int64_t row_bytes = width * static_cast<int64_t>(sizeof(Real));
  for_each_arrival([&](int64_t to, int64_t from, int64_t count) {
    std::copy_n(rows + from * width, count * width, spare + to * width);
  });
  exchange(reinterpret_cast<const std::byte*>(spare), arrived_,
           reinterpret_cast<std::byte*>(pairs), away_, row_bytes,
           "pairs to tokens");
}

template void PairExchange::to_experts<float>(const float*, float*, int64_t,
                                              float*);
template void PairExchange::to_experts<double>(const double*, double*, int64_t,
                                               double*);
template void PairExchange::to_tokens<float>(const float*, float*, int64_t,
                                             float*);
template void PairExchange::to_tokens<double>(const double*, double*, int64_t,
                                              double*);

}  // namespace canzona::model
