// Which experts a token goes to and with what weight: softmax over the
// router's logits, the largest probabilities, divided by their sum.
//
//   Routing<float> routing = take_routing<float>(cutter, sizes);
//   engine.product(…routing.probabilities…);    // the logits
//   route(sizes, routing);
//   …
//   route_backward(sizes, coefficient, routing, dweights, dlogits);
//
// The balance loss of a sequence is E · Σ_e f_e · P_e: f_e the share of its
// pairs that go to expert e, a constant to backward, P_e the mean of e's
// probability over its tokens. It is 1 where all is even.
//
// The arrays belong to the caller, nothing is allocated; sums have an order of
// their own, so that equal logits give equal bits on every rank.
#pragma once

#include <cstdint>

#include "canzona/model/cutter.h"
#include "canzona/model/experts_sizes.h"

namespace canzona {

template <class Real>
struct Routing {
  Real* probabilities = nullptr;  // tokens x experts; logits to route()
  int32_t* chosen = nullptr;      // tokens x choices, the most likely first
  Real* weights = nullptr;        // tokens x choices
  // Of pairs: their place where they are sorted by expert, then by token.
  int64_t* places = nullptr;
  int64_t* counts = nullptr;   // pairs of each expert
  int64_t* cursors = nullptr;  // for each expert, of use inside route() alone
  double* shares = nullptr;    // sequences x experts: f
  double* balance = nullptr;   // one number, the mean over the sequences
};

template <class Real>
Routing<Real> take_routing(Cutter& cutter, const ExpertSizes& sizes);

// Of equal probabilities the lower expert is first. Numbers that are not finite
// give weights of no use, and still as many different experts.
template <class Real>
void route(const ExpertSizes& sizes, const Routing<Real>& routing);

// The gradient of the logits from that of the weights (tokens x choices) and
// `coefficient` times the balance loss.
template <class Real>
void route_backward(const ExpertSizes& sizes, double coefficient,
                    const Routing<Real>& routing, const Real* dweights,
                    Real* dlogits);

}  // namespace canzona
