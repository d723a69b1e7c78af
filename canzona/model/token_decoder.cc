#include "canzona/model/token_decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"

namespace canzona::model {
namespace {

struct Candidate {
  int32_t token;
  float logit;
};

std::vector<Candidate> candidates_of(std::span<const float> logits) {
  std::vector<Candidate> all;
  all.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i]))
      throw NumericalError(cat("the logit of token ", i,
                               " is not finite: the weights may be corrupt"));
    all.push_back({static_cast<int32_t>(i), logits[i]});
  }
  return all;
}

// Keeps the first of equal logits.
void keep_largest(int64_t count, std::vector<Candidate>& all) {
  if (count == 0 || std::cmp_greater_equal(count, all.size())) return;
  std::ranges::nth_element(
      all, all.begin() + count, [](const Candidate& a, const Candidate& b) {
        return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
      });
  all.resize(static_cast<size_t>(count));
  std::ranges::sort(all, {}, &Candidate::token);
}

}  // namespace

int32_t choose_token(std::span<const float> logits, const TokenChoice& choice,
                     double chance) {
  std::vector<Candidate> all = candidates_of(logits);
  const Candidate largest =
      *std::ranges::max_element(all, {}, &Candidate::logit);
  if (choice.temperature == 0) return largest.token;
  keep_largest(choice.top_k, all);
  std::vector<double> sums;  // cumulative shares
  double sum = 0;
  for (const Candidate& candidate : all)
    sums.push_back(
        sum += std::exp((static_cast<double>(candidate.logit) - largest.logit) /
                        choice.temperature));
  const auto found = std::ranges::upper_bound(sums, chance * sum);
  const auto place = std::min(found - sums.begin(), std::ssize(all) - 1);
  return all[static_cast<size_t>(place)].token;
}

namespace {

// Tokens read at once, so that the number before them is a multiple of 64, as
// attention requires.
constexpr int64_t kAtOnce = 64;

int64_t whole_blocks(int64_t tokens) {
  return (tokens + kAtOnce - 1) / kAtOnce * kAtOnce;
}

DecoderConfig config_for(DecoderConfig config, int64_t length,
                         int64_t capacity) {
  config.length = length;
  config.context = whole_blocks(capacity);
  config.micro_batch = 1;
  config.recompute = Recompute::kLayer;  // layers share their memory
  config.head_chunk = 0;
  return config;
}

int64_t numbers_of_layer(const DecoderConfig& config, int64_t capacity) {
  const Architecture& a = config.architecture;
  return checked_mul(checked_mul(a.kv_heads, a.head_dim, "keys and values"),
                     whole_blocks(capacity), "keys and values");
}

Parallel without_head(const DecoderConfig& config) {
  Parallel all;
  all.num_layers = config.architecture.layers;
  all.has_head = false;
  return all;
}

}  // namespace

template <class Real>
TokenDecoder<Real>::TokenDecoder(const DecoderConfig& config,
                                 const Model& shapes, Engine& engine,
                                 Weights<Real>& weights, int64_t capacity)
    : capacity_(capacity),
      past_(static_cast<size_t>(config.architecture.layers)),
      many_(config_for(config, kAtOnce, capacity), shapes, without_head(config),
            engine, weights),
      one_(config_for(config, 1, capacity), shapes,
           {.num_layers = config.architecture.layers}, engine, weights),
      stream_(static_cast<size_t>(kAtOnce * config.architecture.hidden)),
      logits_(static_cast<size_t>(config.architecture.vocab)) {
  CANZONA_CHECK(capacity >= 1 && !past_.empty());
  const int64_t numbers = numbers_of_layer(config, capacity);
  cache_.resize(static_cast<size_t>(
      checked_mul(2 * config.architecture.layers, numbers, "keys and values")));
  Real* place = cache_.data();
  for (PastTokens<Real>& layer : past_) {
    layer = {place, place + numbers, whole_blocks(capacity), 0};
    place += 2 * numbers;
  }
  many_.set_past(past_);
  one_.set_past(past_);
}

template <class Real>
int64_t TokenDecoder<Real>::reserved() const {
  return many_.reserved() + one_.reserved() +
         static_cast<int64_t>(
             sizeof(Real) * (cache_.size() + stream_.size() + logits_.size()));
}

template <class Real>
void TokenDecoder<Real>::set_count(int64_t count) {
  for (PastTokens<Real>& layer : past_) layer.count = count;
}

// Reads blocks that begin at a multiple of their size. The positions that pad
// the last one are computed, too, and overwritten by later tokens.
template <class Real>
void TokenDecoder<Real>::read_many(std::span<const int32_t> tokens) {
  std::array<int32_t, kAtOnce + 1> block;
  const auto at_once = static_cast<size_t>(kAtOnce);
  for (size_t first = 0; first < tokens.size(); first += at_once) {
    const auto part =
        tokens.subspan(first, std::min(at_once, tokens.size() - first));
    std::ranges::fill(block, part.back());
    std::ranges::copy(part, block.begin());
    many_.evaluate(block, nullptr, stream_.data());
    set_count(count() + std::ssize(part));
  }
}

template <class Real>
std::span<const Real> TokenDecoder<Real>::read(
    std::span<const int32_t> tokens) {
  CANZONA_CHECK(!tokens.empty() && std::ssize(tokens) <= capacity_ - count(),
                tokens.size(), " tokens behind ", count(), " of ", capacity_);
  const auto step = [&](int32_t token) {
    const std::array<int32_t, 2> sequence = {token, token};
    one_.logits(sequence, [&](int64_t, std::span<const Real> row) {
      std::ranges::copy(row, logits_.begin());
    });
    set_count(count() + 1);
  };
  while (tokens.size() > 1 && count() % kAtOnce != 0) {
    step(tokens.front());
    tokens = tokens.subspan(1);
  }
  if (tokens.size() > 1) read_many(tokens.first(tokens.size() - 1));
  step(tokens.back());
  return logits_;
}

template class TokenDecoder<float>;
template class TokenDecoder<double>;

}  // namespace canzona::model
