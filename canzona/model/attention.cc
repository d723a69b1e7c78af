#include "canzona/model/attention.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/check.h"
#include "canzona/model/weights.h"

namespace canzona::model {
namespace {

// The block size of keys is a multiple of that of queries, so that a row sees
// at least one key of every block that it is given.
constexpr int64_t kQueries = 64;
constexpr int64_t kKeys = 128;
static_assert(kKeys % kQueries == 0);

}  // namespace

template <class Real>
AttentionSpace<Real> AttentionSpace<Real>::take(const DecoderSizes& sizes,
                                                Cutter& cutter) {
  const int64_t length = sizes.length;
  const int64_t dim = sizes.head_dim;
  const int64_t rows = std::min(kQueries, sizes.length) * sizes.per_group;
  const int64_t cols = std::min(kKeys, sizes.reach);
  AttentionSpace space;
  space.cosines = cutter.take<Real>(sizes.reach, dim / 2);
  space.sines = cutter.take<Real>(sizes.reach, dim / 2);
  space.queries = cutter.take<Real>(length, sizes.per_group * dim);
  space.keys = cutter.take<Real>(length, dim);
  space.query_gradients = cutter.take<Real>(length, sizes.per_group * dim);
  space.key_gradients = cutter.take<Real>(length, dim);
  space.value_gradients = cutter.take<Real>(length, dim);
  space.scores = cutter.take<Real>(rows, cols);
  space.score_gradients = cutter.take<Real>(rows, cols);
  space.heads = cutter.take<Real>(rows, dim);
  space.largest = cutter.take<Real>(rows);
  space.sums = cutter.take<Real>(rows);
  return space;
}

template <class Real>
Attention<Real>::Attention(const DecoderConfig& config,
                           const DecoderSizes& sizes, Engine& engine,
                           const AttentionSpace<Real>& space)
    : sizes_(sizes),
      epsilon_(static_cast<Real>(config.norm_epsilon)),
      engine_(engine),
      space_(space) {
  fill_angles(space.cosines, space.sines, config);
}

template <class Real>
typename Attention<Real>::Group Attention<Real>::group_at(Real* qkv,
                                                          int64_t sequence,
                                                          int64_t group) const {
  const int64_t token = sequence * sizes_.length;
  const int64_t dim = sizes_.head_dim;
  Group g{qkv + token * sizes_.qkv() + group * sizes_.group(),
          group * sizes_.per_group, token};
  const int64_t before = group * past_.capacity * dim;
  const bool has_past = past_.keys != nullptr;
  g.keys = has_past ? past_.keys + before : space_.keys;
  g.values = has_past ? past_.values + before : raw_values(g);
  g.value_stride = has_past ? dim : sizes_.qkv();
  return g;
}

template <class Real>
void Attention<Real>::set_past(const PastTokens<Real>& past) {
  CANZONA_CHECK(sizes_.micro_batch == 1 && past.keys != nullptr);
  CANZONA_CHECK(past.count >= 0 && past.count + sizes_.length <= sizes_.reach &&
                    past.capacity >= past.count + sizes_.length,
                past.count, " past tokens and ", sizes_.length, " more of ",
                past.capacity);
  CANZONA_CHECK(sizes_.length == 1 || past.count % kQueries == 0, past.count,
                " past tokens");
  past_ = past;
}

template <class Real>
void Attention<Real>::keep_values(const Group& g) const {
  for (int64_t t = 0; t < sizes_.length; ++t)
    std::copy_n(raw_values(g) + t * sizes_.qkv(), sizes_.head_dim,
                value_at(g, past_.count + t));
}

// Only backward writes to the raw heads.
template <class Real>
TurnedHeads<Real> Attention<Real>::heads_of(const Group& g, Real* turned,
                                            bool query,
                                            const Real* weight) const {
  return {.raw = query ? g.qkv : g.qkv + sizes_.per_group * sizes_.head_dim,
          .raw_stride = sizes_.qkv(),
          .turned = turned,
          .weight = weight,
          .cosines = space_.cosines + past_.count * sizes_.head_dim / 2,
          .sines = space_.sines + past_.count * sizes_.head_dim / 2,
          .tokens = sizes_.length,
          .heads = query ? sizes_.per_group : 1,
          .head_dim = sizes_.head_dim,
          .epsilon = epsilon_};
}

template <class Real>
void Attention<Real>::turn(const Group& g, const HeadNorms<Real>& norms) {
  ops<Real>().turn(heads_of(g, space_.queries, true, norms.query));
  ops<Real>().turn(
      heads_of(g, g.keys + past_.count * sizes_.head_dim, false, norms.key));
}

template <class Real>
void Attention<Real>::turn_back(const Group& g, const HeadNorms<Real>& norms,
                                const HeadNormGradients<Real>& gradients) {
  TurnedHeads<Real> queries =
      heads_of(g, space_.query_gradients, true, norms.query);
  queries.weight_gradient = gradients.query;
  ops<Real>().turn_backward(queries);
  TurnedHeads<Real> keys = heads_of(g, space_.key_gradients, false, norms.key);
  keys.weight_gradient = gradients.key;
  ops<Real>().turn_backward(keys);
  for (int64_t t = 0; t < sizes_.length; ++t)
    std::copy_n(space_.value_gradients + t * sizes_.head_dim, sizes_.head_dim,
                value_at(g, t));
}

// Visits blocks of keys up to the last query.
template <class Real>
template <class Work>
void Attention<Real>::each_key_block(Block b, const Work& work) const {
  const int64_t end = past_.count + b.first + b.tokens;
  for (b.begin = 0; b.begin < end; b.begin += kKeys) {
    b.count = std::min(kKeys, end - b.begin);
    work(b);
  }
}

template <class Real>
ScoreBlock<Real> Attention<Real>::score(const Group& g, const Block& b) {
  const int64_t rows = b.tokens * sizes_.per_group;
  const int64_t dim = sizes_.head_dim;
  engine_.product(matrices(space_.scores, rows, b.count), 1,
                  matrices(query_at(space_.queries, b), rows, dim), Op::kNone,
                  matrices(g.keys + b.begin * dim, b.count, dim),
                  Op::kTranspose, 0);
  return {.scores = space_.scores,
          .rows = rows,
          .cols = b.count,
          .heads = sizes_.per_group,
          .visible = past_.count + b.first - b.begin + 1,
          .scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(dim)))};
}

template <class Real>
void Attention<Real>::attend(const Group& g, const Block& b) {
  const ScoreBlock<Real> block = score(g, b);
  const int64_t dim = sizes_.head_dim;
  const bool is_first = b.begin == 0;
  ops<Real>().soften(block, space_.largest, space_.sums,
                     is_first ? nullptr : space_.heads, dim);
  engine_.product(matrices(space_.heads, block.rows, dim), 1,
                  matrices(space_.scores, block.rows, b.count), Op::kNone,
                  strided(value_at(g, b.begin), b.count, dim, g.value_stride),
                  Op::kNone, is_first ? 0 : 1);
}

template <class Real>
void Attention<Real>::attend_queries(const Group& g, const Block& b, Real* out,
                                     Real* log_sums) {
  each_key_block(b, [&](const Block& keys) { attend(g, keys); });
  const int64_t token = g.first_token + b.first;
  ops<Real>().finish_heads(
      out + token * sizes_.width() + g.first_head * sizes_.head_dim,
      sizes_.width(), log_sums + token * sizes_.heads() + g.first_head,
      sizes_.heads(), space_.heads, space_.largest, space_.sums, b.tokens,
      sizes_.per_group, sizes_.head_dim);
}

// Requires the maxima of a block's queries, by token and head.
template <class Real>
void Attention<Real>::note_largest(const Group& g, const Block& b,
                                   Real* largest_logits) const {
  for (int64_t row = 0; row < b.tokens * sizes_.per_group; ++row) {
    Real& most = largest_logits[g.first_head + row % sizes_.per_group];
    const Real own = space_.largest[row];
    if (own > most || std::isnan(own)) most = own;
  }
}

template <class Real>
template <class Work>
void Attention<Real>::each_query_block(const Work& work) const {
  for (int64_t first = 0; first < sizes_.length; first += kQueries)
    work(Block{first, std::min(kQueries, sizes_.length - first)});
}

template <class Real>
template <class Work>
void Attention<Real>::each_group(Real* qkv, const Work& work) const {
  for (int64_t sequence = 0; sequence < sizes_.micro_batch; ++sequence)
    for (int64_t group = 0; group < sizes_.groups; ++group)
      work(group_at(qkv, sequence, group));
}

template <class Real>
void Attention<Real>::forward(Real* qkv, const HeadNorms<Real>& norms,
                              Real* out, Real* log_sums, Real* largest_logits) {
  each_group(qkv, [&](const Group& g) {
    turn(g, norms);
    if (past_.keys != nullptr) keep_values(g);
    each_query_block([&](const Block& b) {
      attend_queries(g, b, out, log_sums);
      if (largest_logits != nullptr) note_largest(g, b, largest_logits);
    });
  });
}

// With P the probabilities and D the scores' gradients: dV += PᵀdO, D =
// P∘(dO·Vᵀ - δ), dQ += D·K, dK += DᵀQ. The first block of keys sets dQ; later
// ones add to it.
template <class Real>
void Attention<Real>::attend_backward(const Group& g, const Block& b) {
  const ScoreBlock<Real> block = score(g, b);
  const int64_t dim = sizes_.head_dim;
  const Matrices scores = matrices(space_.scores, block.rows, b.count);
  const Matrices gradients =
      matrices(space_.score_gradients, block.rows, b.count);
  const Matrices heads = matrices(space_.heads, block.rows, dim);
  engine_.product(gradients, 1, heads, Op::kNone,
                  strided(value_at(g, b.begin), b.count, dim, g.value_stride),
                  Op::kTranspose, 0);
  ops<Real>().soften_backward(block, space_.score_gradients, space_.largest,
                              space_.sums);
  const auto rows_of = [&](Real* all) {
    return matrices(all + b.begin * dim, b.count, dim);
  };
  const Real* queries = query_at(space_.queries, b);
  engine_.product(rows_of(space_.value_gradients), 1, scores, Op::kTranspose,
                  heads, Op::kNone, 1);
  engine_.product(rows_of(space_.key_gradients), 1, gradients, Op::kTranspose,
                  matrices(queries, block.rows, dim), Op::kNone, 1);
  engine_.product(
      matrices(query_at(space_.query_gradients, b), block.rows, dim), 1,
      gradients, Op::kNone, rows_of(space_.keys), Op::kNone,
      b.begin == 0 ? 0 : 1);
}

template <class Real>
void Attention<Real>::attend_queries_backward(const Group& g, const Block& b,
                                              const Saved& saved) {
  const int64_t token = g.first_token + b.first;
  const int64_t offset =
      token * sizes_.width() + g.first_head * sizes_.head_dim;
  ops<Real>().gather_heads(space_.heads, space_.sums,
                           saved.out_gradient + offset, saved.out + offset,
                           sizes_.width(), b.tokens, sizes_.per_group,
                           sizes_.head_dim);
  for (int64_t t = 0; t < b.tokens; ++t)
    std::copy_n(saved.log_sums + (token + t) * sizes_.heads() + g.first_head,
                sizes_.per_group, space_.largest + t * sizes_.per_group);
  each_key_block(b, [&](const Block& keys) { attend_backward(g, keys); });
}

template <class Real>
void Attention<Real>::backward(Real* qkv, const HeadNorms<Real>& norms,
                               const Saved& saved,
                               const HeadNormGradients<Real>& gradients) {
  CANZONA_CHECK(past_.keys == nullptr, "no backward behind past tokens");
  const int64_t key_part = sizes_.length * sizes_.head_dim;
  each_group(qkv, [&](const Group& g) {
    turn(g, norms);
    std::fill_n(space_.key_gradients, key_part, Real{0});
    std::fill_n(space_.value_gradients, key_part, Real{0});
    each_query_block(
        [&](const Block& b) { attend_queries_backward(g, b, saved); });
    turn_back(g, norms, gradients);
  });
}

template struct AttentionSpace<float>;
template struct AttentionSpace<double>;
template class Attention<float>;
template class Attention<double>;

}  // namespace canzona::model
