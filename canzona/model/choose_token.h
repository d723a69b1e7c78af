// Chooses the next token by its logits.
//
//   int32_t token = choose_token(logits, {.temperature = 0.8, .top_k = 40}, u);
//
// choose_token() is pure.
#pragma once

#include <cstdint>
#include <span>

namespace canzona {

struct TokenChoice {
  double temperature = 0;  // 0: the largest logit, the first in a tie
  int64_t top_k = 0;       // only this many of the largest; 0: all
};

// `chance` in [0, 1) picks among the tokens in order of their numbers, with the
// probabilities softmax(logits / temperature). Logits that are not finite are
// never chosen; throws NumericalError if none is finite.
int32_t choose_token(std::span<const float> logits, const TokenChoice& choice,
                     double chance);

}  // namespace canzona
