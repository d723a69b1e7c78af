#include "canzona/model/experts_routing.h"

#include <algorithm>
#include <cmath>

namespace canzona {
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

// The most likely expert that is not among the chosen ones.
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

// Σ_e f_e · P_e of one sequence; leaves f.
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

// From the gradient of a softmax's results to that of its inputs.
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

}  // namespace canzona
