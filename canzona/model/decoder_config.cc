#include "canzona/model/decoder_config.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::model {
namespace {

// Maps numbers to integers of the same order: below 0, larger bits are smaller.
int64_t ordered_bits(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}
float from_ordered_bits(int64_t ordered) {
  const auto small = static_cast<int32_t>(ordered);
  const int32_t bits = small >= 0 ? small : small ^ 0x7fffffff;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace

template <class Real>
TpGroup<Real>::TpGroup(Communicator* ranks) : ranks_(ranks) {
  if (std::is_same_v<Real, double> && size() > 1)
    throw UsageError(cat("decoder: tp=", size(),
                         " needs fp32: sums over ranks do not support fp64"));
}

template <class Real>
void TpGroup<Real>::reduce(Reduction reduction, void* data, int64_t bytes,
                           std::string_view label) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  ranks_->all_reduce(
      reduction,
      std::span(static_cast<std::byte*>(data), static_cast<size_t>(bytes)),
      {.label = label});
  seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
}

template <class Real>
void TpGroup<Real>::add(Real* data, int64_t count, std::string_view label) {
  if (size() == 1) return;
  reduce(Reduction::kFp32Sum, data, count * static_cast<int64_t>(sizeof(Real)),
         label);
}

template <class Real>
void TpGroup<Real>::largest(Real* data, int64_t count, int64_t* scratch,
                            std::string_view label) {
  if (size() == 1) return;
  for (int64_t i = 0; i < count; ++i)
    scratch[i] = ordered_bits(static_cast<float>(data[i]));
  reduce(Reduction::kInt64Max, scratch,
         count * static_cast<int64_t>(sizeof(int64_t)), label);
  for (int64_t i = 0; i < count; ++i) data[i] = from_ordered_bits(scratch[i]);
}

template class TpGroup<float>;
template class TpGroup<double>;

namespace {

int64_t share_of(int64_t whole, int ranks, std::string_view what,
                 std::string_view axis) {
  if (whole % ranks != 0) {
    throw UsageError(cat("decoder: ", axis, "=", ranks, " does not divide ",
                         what, ", ", whole));
  }
  return whole / ranks;
}

}  // namespace

ExpertSizes expert_sizes(const DecoderConfig& config,
                         const Parallel& parallel) {
  const Architecture& a = config.architecture;
  const ExpertNumbers& experts = a.experts;
  CANZONA_CHECK(config.experts_per_token >= 1 &&
                    config.experts_per_token <= experts.count,
                config.experts_per_token, " of ", experts.count, " experts");
  share_of(experts.count, parallel.ep_size(), "the experts", "ep");
  const int tp = parallel.tp_size();
  return {.tokens = config.tokens(),
          .length = config.length,
          .hidden = a.hidden,
          .experts = experts.count,
          .choices = config.experts_per_token,
          .ffn = share_of(experts.ffn, tp, "the ffn of an expert", "tp"),
          .shared_ffn = share_of(experts.shared * experts.ffn, tp,
                                 "the ffn of the shared experts", "tp"),
          .ranks = parallel.ep_size()};
}

namespace {

// The logits of a chunk of tokens; with a small vocabulary, all are in memory
// at once.
constexpr int64_t kChunkLogits = int64_t{1} << 24;
constexpr int64_t kLeastChunk = 128;
// The limit on a sequence's tokens and on a micro-batch's sequences, because
// dimensions of a product are ints.
constexpr int64_t kMostTokens = int64_t{1} << 24;

void refuse(bool wrong, const std::string& name, const std::string& what) {
  if (wrong) throw UsageError(cat("decoder ", quoted(name), ": ", what));
}

void check_attention(const Architecture& a, const std::string& name) {
  refuse(a.latent.kv_rank > 0, name,
         cat("latent attention (kv_rank ", a.latent.kv_rank,
             ") is not supported, only grouped queries"));
  refuse(a.attention_bias || a.mlp_bias, name, "biases are not supported");
  refuse(a.qk_norm && a.wide_qk_norm, name,
         "norms of queries and keys must be per head");
  refuse(a.head_dim % 2 != 0, name,
         cat("head_dim must be even, since rotary angles rotate pairs, got ",
             a.head_dim));
}

void check_numbers(const DecoderConfig& c, const std::string& name) {
  const auto check_size = [&](const char* what, int64_t size) {
    refuse(size < 1 || size > kMostTokens, name,
           cat(what, " must be from 1 to ", kMostTokens, ", got ", size));
  };
  check_size("length", c.length);
  check_size("micro_batch", c.micro_batch);
  refuse(c.head_chunk < 0, name,
         cat("head_chunk must not be below 0, got ", c.head_chunk));
  refuse(!(c.norm_epsilon > 0), name,
         cat("norm_epsilon must be above 0, got ", c.norm_epsilon));
  refuse(!(c.rope_base > 0), name,
         cat("rope_base must be above 0, got ", c.rope_base));
}

void check_experts(const DecoderConfig& c, const std::string& name) {
  const int64_t count = c.architecture.experts.count;
  if (count == 0) return;
  refuse(c.experts_per_token < 1 || c.experts_per_token > count, name,
         cat("experts_per_token must be from 1 to ", count, ", got ",
             c.experts_per_token));
  refuse(!(c.balance_coefficient >= 0), name,
         cat("balance_coefficient must not be below 0, got ",
             c.balance_coefficient));
}

void check_divides(int tp, int64_t size, const char* what) {
  if (size % tp != 0)
    throw UsageError(
        cat("decoder: tp=", tp, " does not divide the ", size, " ", what));
}

bool has_dense_layers(const Architecture& a) {
  for (int64_t layer = 0; layer < a.layers; ++layer)
    if (!a.experts.in_layer(layer)) return true;
  return false;
}

void check_cuts(const Architecture& a, int tp) {
  if (a.heads % tp != 0 || a.kv_heads % tp != 0)
    throw UsageError(cat("decoder: tp=", tp, " must divide both the ", a.heads,
                         " query heads and the ", a.kv_heads,
                         " key/value heads"));
  if (has_dense_layers(a))
    check_divides(tp, a.ffn, "rows of gate and up (ffn)");
  check_divides(tp, a.vocab, "tokens of the vocabulary");
}

}  // namespace

void check_decoder(const DecoderConfig& config, const std::string& name) {
  check_attention(config.architecture, name);
  check_numbers(config, name);
  check_experts(config, name);
}

Model decoder_shapes(const DecoderConfig& config, const std::string& name) {
  check_decoder(config, name);
  return generate_model(config.architecture, name, true);
}

DecoderSizes decoder_sizes(const DecoderConfig& config,
                           const Parallel& parallel) {
  const Architecture& a = config.architecture;
  const int tp = parallel.tp_size();
  check_cuts(a, tp);
  DecoderSizes sizes;
  sizes.length = config.length;
  sizes.reach = config.reach();
  sizes.micro_batch = config.micro_batch;
  sizes.hidden = a.hidden;
  sizes.groups = a.kv_heads / tp;
  sizes.per_group = a.heads / a.kv_heads;
  sizes.head_dim = a.head_dim;
  sizes.ffn = a.ffn / tp;
  sizes.vocab = a.vocab / tp;
  sizes.head_chunk = std::min(
      sizes.tokens(), config.head_chunk > 0
                          ? config.head_chunk
                          : std::max(kLeastChunk, kChunkLogits / sizes.vocab));
  return sizes;
}

template <class Real>
void fill_angles(Real* cosines, Real* sines, const DecoderConfig& config) {
  const int64_t half = config.architecture.head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double turn = std::pow(
        config.rope_base, -static_cast<double>(i) / static_cast<double>(half));
    for (int64_t t = 0; t < config.reach(); ++t) {
      const double angle = static_cast<double>(t) * turn;
      cosines[t * half + i] = static_cast<Real>(std::cos(angle));
      sines[t * half + i] = static_cast<Real>(std::sin(angle));
    }
  }
}

template void fill_angles<float>(float*, float*, const DecoderConfig&);
template void fill_angles<double>(double*, double*, const DecoderConfig&);

}  // namespace canzona::model
