// Chooses the next token by its logits.
//
//   int32_t token = choose_token(logits, {.temperature = 0.8, .top_k = 40}, u);
//
// Pure; any thread may call it.
#pragma once

#include <cstdint>
#include <span>

namespace canzona {

struct TokenChoice {
  double temperature = 0;  // 0: the largest logit, of equals the first
  int64_t top_k = 0;       // only this many of the largest; 0: all
};

// `chance` in [0, 1) picks among the tokens in order of their numbers, each
// with the share that softmax(logits / temperature) gives it. Logits that are
// not finite are never chosen; NumericalError if none is finite.
int32_t choose_token(std::span<const float> logits, const TokenChoice& choice,
                     double chance);

}  // namespace canzona
