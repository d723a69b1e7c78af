#include "canzona/model/test_experts.h"

#include "canzona/base/text.h"

namespace canzona::model {
namespace {

double dot_row(const Numbers& matrix, int64_t row, const Numbers& vector) {
  const size_t cols = vector.size();
  double sum = 0;
  for (size_t i = 0; i < cols; ++i)
    sum += matrix[static_cast<size_t>(row) * cols + i] * vector[i];
  return sum;
}

Numbers mlp(const Numbers& gate_up, const Numbers& down, const Numbers& token) {
  const auto ffn = static_cast<int64_t>(gate_up.size() / token.size() / 2);
  Numbers act, out;
  for (int64_t f = 0; f < ffn; ++f) {
    const double gate = dot_row(gate_up, f, token);
    const double up = dot_row(gate_up, ffn + f, token);
    act.push_back(gate / (1 + std::exp(-gate)) * up);
  }
  for (size_t h = 0; h < token.size(); ++h)
    out.push_back(dot_row(down, static_cast<int64_t>(h), act));
  return out;
}

Numbers softmax_of(const Numbers& logits) {
  Numbers p;
  double sum = 0;
  for (const double logit : logits) sum += p.emplace_back(std::exp(logit));
  for (double& value : p) value /= sum;
  return p;
}

std::vector<size_t> largest_of(const Numbers& p, int64_t count) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [&](size_t a, size_t b) { return p[a] > p[b]; });
  order.resize(static_cast<size_t>(count));
  return order;
}

// One token's path, with what its sequence counts.
class ReferenceToken {
 public:
  ReferenceToken(const ExpertTrial& trial,
                 const std::vector<Numbers>& parameters)
      : trial_(trial), parameters_(parameters) {}

  Numbers operator()(const Numbers& token, Numbers& chosen,
                     Numbers& probability) const {
    const int64_t experts = trial_.config.architecture.experts.count;
    Numbers logits, y(token.size());
    for (int64_t e = 0; e < experts; ++e)
      logits.push_back(dot_row(weight("gate.weight"), e, token));
    const Numbers p = softmax_of(logits);
    for (size_t e = 0; e < p.size(); ++e) probability[e] += p[e];
    const auto best = largest_of(p, trial_.config.experts_per_token);
    double sum = 0;
    for (const size_t e : best) sum += p[e];
    for (const size_t e : best) {
      chosen[e] += 1;
      add(y, cat("experts.", e), token, p[e] / sum);
    }
    if (trial_.config.architecture.experts.shared > 0)
      add(y, "shared_experts", token, 1);
    return y;
  }

 private:
  const Numbers& weight(const std::string& name) const {
    return parameters_.at(trial_.tensor(name));
  }
  void add(Numbers& y, const std::string& name, const Numbers& token,
           double factor) const {
    const Numbers out = mlp(weight(name + ".gate_up_proj.weight"),
                            weight(name + ".down_proj.weight"), token);
    for (size_t i = 0; i < y.size(); ++i) y[i] += factor * out[i];
  }

  const ExpertTrial& trial_;
  const std::vector<Numbers>& parameters_;
};

}  // namespace

ReferenceResult reference(const ExpertTrial& trial,
                          const std::vector<Numbers>& parameters,
                          const Numbers& x) {
  const DecoderConfig& config = trial.config;
  const int64_t hidden = config.architecture.hidden;
  const auto experts = static_cast<size_t>(config.architecture.experts.count);
  const ReferenceToken run(trial, parameters);
  ReferenceResult result;
  for (int64_t s = 0; s < config.micro_batch; ++s) {
    Numbers chosen(experts), probability(experts);
    for (int64_t t = s * config.length; t < (s + 1) * config.length; ++t) {
      const Numbers token(x.begin() + t * hidden, x.begin() + (t + 1) * hidden);
      const Numbers y = run(token, chosen, probability);
      result.y.insert(result.y.end(), y.begin(), y.end());
    }
    const auto length = static_cast<double>(config.length);
    const double pairs = length * static_cast<double>(config.experts_per_token);
    for (size_t e = 0; e < experts; ++e)
      result.balance += static_cast<double>(experts) * (chosen[e] / pairs) *
                        (probability[e] / length);
  }
  result.balance *=
      config.balance_coefficient / static_cast<double>(config.micro_batch);
  return result;
}

ReferenceGradients differences(const ExpertTrial& trial, const Numbers& x,
                               const Numbers& dy) {
  Numbers at = x;
  std::vector<Numbers> parameters = trial.parameters;
  const auto loss = [&] {
    const ReferenceResult result = reference(trial, parameters, at);
    return std::inner_product(dy.begin(), dy.end(), result.y.begin(),
                              result.balance);
  };
  const auto slopes = [&](Numbers& values) {
    constexpr double kStep = 1e-5;
    Numbers found;
    for (double& value : values) {
      const double kept = value;
      value = kept + kStep;
      const double above = loss();
      value = kept - kStep;
      found.push_back((above - loss()) / (2 * kStep));
      value = kept;
    }
    return found;
  };
  ReferenceGradients gradients;
  gradients.x = slopes(at);
  gradients.parameters.resize(parameters.size());
  for (const size_t t : trial.tensors())
    gradients.parameters[t] = slopes(parameters[t]);
  return gradients;
}

}  // namespace canzona::model
