// Computes the loss of a whole model over many sequences as the evaluation of a
// run does: micro-batch by micro-batch, added in order.
//
//   const auto read = [&](int64_t n, auto to) { batches.held_out(n, to); };
//   double loss = mean_loss(model, batches.num_held_out(), read,
//                           [](int64_t done) { … });
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "canzona/train/local_decoder.h"

namespace canzona {

// Fills in length + 1 tokens.
using ReadSequence = std::function<void(int64_t number, std::span<int32_t> to)>;

// Averages over sequences 0 … count − 1, at least one. `done` gets the number
// done so far.
double mean_loss(LocalDecoder& model, int64_t count, const ReadSequence& read,
                 const std::function<void(int64_t)>& done);

}  // namespace canzona
