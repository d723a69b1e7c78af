// The decoder's loss by plain loops over single numbers; it shares no code with
// what it checks.
#include <cmath>
#include <cstddef>

#include "canzona/model/test_decoder.h"

namespace canzona::model {
namespace {

using Rows = std::vector<Values>;

class Reference {
 public:
  Reference(const DecoderTrial& trial, const std::vector<Values>& parameters)
      : trial_(trial), parameters_(parameters) {}

  double loss() const {
    const auto length = static_cast<size_t>(config().length);
    double sum = 0;
    for (size_t begin = 0; begin < trial_.sequences.size(); begin += length + 1)
      sum += sequence_loss(begin);
    return sum / static_cast<double>(config().tokens());
  }

 private:
  const DecoderConfig& config() const { return trial_.config; }
  const Values& weight(const std::string& name) const {
    for (size_t t = 0; t < parameters_.size(); ++t)
      if (trial_.shapes.tensors[t].name == name) return parameters_[t];
    return parameters_.at(parameters_.size());
  }

  static Values normed(const Values& x, const Values& w, double epsilon) {
    double mean = 0;
    for (const double v : x) mean += v * v / static_cast<double>(x.size());
    Values y;
    for (size_t i = 0; i < x.size(); ++i)
      y.push_back(x[i] / std::sqrt(mean + epsilon) * w[i]);
    return y;
  }
  static Values times(const Values& w, const Values& x) {
    Values y(w.size() / x.size());
    for (size_t i = 0; i < y.size(); ++i)
      for (size_t j = 0; j < x.size(); ++j) y[i] += w[i * x.size() + j] * x[j];
    return y;
  }
  static void add(Values& x, const Values& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  // Head `number` of a row of heads, normed with `norm` unless the model has no
  // such norms, and rotated to position t.
  Values turned(const Values& row, size_t number, const std::string& norm,
                size_t t) const {
    const auto dim = static_cast<size_t>(config().architecture.head_dim);
    const auto from = row.begin() + static_cast<ptrdiff_t>(number * dim);
    Values y(from, from + static_cast<ptrdiff_t>(dim));
    if (config().architecture.qk_norm)
      y = normed(y, weight(norm), config().norm_epsilon);
    Values z(dim);
    for (size_t i = 0; i < dim / 2; ++i) {
      const double angle =
          static_cast<double>(t) *
          std::pow(config().rope_base,
                   -2.0 * static_cast<double>(i) / static_cast<double>(dim));
      const double a = y[i], b = y[i + dim / 2];
      z[i] = a * std::cos(angle) - b * std::sin(angle);
      z[i + dim / 2] = a * std::sin(angle) + b * std::cos(angle);
    }
    return z;
  }

  // Row t's heads; group g has its queries, then its key, then its value.
  Values attention(const Rows& qkv, size_t t, const std::string& at) const {
    const Architecture& a = config().architecture;
    const auto dim = static_cast<size_t>(a.head_dim);
    const auto per_group = static_cast<size_t>(a.heads / a.kv_heads);
    Values out;
    for (size_t head = 0; head < static_cast<size_t>(a.heads); ++head) {
      const size_t first = head / per_group * (per_group + 2);
      const Values query = turned(qkv[t], first + head % per_group,
                                  at + "self_attn.q_norm.weight", t);
      Values sums(dim);
      double total = 0;
      for (size_t s = 0; s <= t; ++s) {
        const Values key = turned(qkv[s], first + per_group,
                                  at + "self_attn.k_norm.weight", s);
        double dot = 0;
        for (size_t i = 0; i < dim; ++i) dot += query[i] * key[i];
        const double e = std::exp(dot / std::sqrt(static_cast<double>(dim)));
        total += e;
        for (size_t i = 0; i < dim; ++i)
          sums[i] += e * qkv[s][(first + per_group + 1) * dim + i];
      }
      for (const double v : sums) out.push_back(v / total);
    }
    return out;
  }

  void apply_layer(Rows& x, const std::string& at) const {
    const double epsilon = config().norm_epsilon;
    Rows qkv;
    for (const Values& row : x)
      qkv.push_back(
          times(weight(at + "self_attn.qkv_proj.weight"),
                normed(row, weight(at + "input_layernorm.weight"), epsilon)));
    for (size_t t = 0; t < x.size(); ++t)
      add(x[t],
          times(weight(at + "self_attn.o_proj.weight"), attention(qkv, t, at)));
    for (Values& row : x) {
      const Values both = times(
          weight(at + "mlp.gate_up_proj.weight"),
          normed(row, weight(at + "post_attention_layernorm.weight"), epsilon));
      const size_t ffn = both.size() / 2;
      Values act;
      for (size_t i = 0; i < ffn; ++i)
        act.push_back(both[i] / (1 + std::exp(-both[i])) * both[ffn + i]);
      add(row, times(weight(at + "mlp.down_proj.weight"), act));
    }
  }

  double sequence_loss(size_t begin) const {
    const Architecture& a = config().architecture;
    const auto hidden = static_cast<ptrdiff_t>(a.hidden);
    const Values& table = weight("model.embed_tokens.weight");
    Rows x;
    for (size_t t = 0; t < static_cast<size_t>(config().length); ++t) {
      const auto row = table.begin() + trial_.sequences[begin + t] * hidden;
      x.emplace_back(row, row + hidden);
    }
    for (int64_t layer = 0; layer < a.layers; ++layer)
      apply_layer(x, "model.layers." + std::to_string(layer) + ".");
    double sum = 0;
    for (size_t t = 0; t < x.size(); ++t) {
      const Values logits = times(
          a.tied ? table : weight("lm_head.weight"),
          normed(x[t], weight("model.norm.weight"), config().norm_epsilon));
      double total = 0;
      for (const double v : logits) total += std::exp(v);
      const auto target = static_cast<size_t>(trial_.sequences[begin + t + 1]);
      sum += std::log(total) - logits[target];
    }
    return sum;
  }

  const DecoderTrial& trial_;
  const std::vector<Values>& parameters_;
};

}  // namespace

double reference_loss(const DecoderTrial& trial,
                      const std::vector<Values>& parameters) {
  return Reference(trial, parameters).loss();
}

}  // namespace canzona::model
