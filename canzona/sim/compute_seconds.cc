#include "canzona/sim/compute_seconds.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona {
namespace {

// The inverse of the normal distribution above its median, by Newton's method
// on erfc, which is monotonic and convex there.
double normal_quantile(double above) {
  double x = 0;
  constexpr int kMostSteps = 60;
  constexpr double kNormalDensity = 0.39894228040143268;  // 1 / sqrt(2 pi)
  for (int i = 0; i < kMostSteps; ++i) {
    const double tail = 0.5 * std::erfc(x / std::sqrt(2.0));
    const double step =
        (tail - above) / (kNormalDensity * std::exp(-x * x / 2));
    x += step;
    if (std::abs(step) < 1e-13 * (1 + x)) break;
  }
  return x;
}

}  // namespace

double expected_largest(int64_t count) {
  if (count <= 1) return 0;
  const auto n = static_cast<double>(count);
  return normal_quantile(0.625 / (n + 0.25));
}

double slowest_of(int64_t count, double spread) {
  return spread > 0 ? 1 + spread * expected_largest(count) : 1;
}

namespace {

constexpr double kForwardFlops = 2;  // per weight and token
constexpr double kBackwardFlops = 4;

void check_load(const Model& model, const ComputeLoad& load) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) throw UsageError(cat("compute load: ", what));
  };
  require(load.tokens >= 0 && load.length >= 0 && load.width >= 0,
          "tokens, length and width are not negative");
  require(load.flops_per_second > 0, "flops per second must be above 0");
  require(load.tensor_parallel >= 1, "tensor parallel ranks are at least 1");
  require(
      model.num_experts == 0 || (load.experts_per_token >= 1 &&
                                 load.experts_per_token <= model.num_experts),
      cat("a token visits 1 to ", model.num_experts, " experts, got ",
          load.experts_per_token));
}

size_t head_module(const Model& model) {
  return static_cast<size_t>(model.num_layers) + 1;
}

// An embedding is looked up; norms and biases multiply nothing.
bool is_multiplied(const Tensor& tensor) {
  return tensor.role == Role::kMatrix || tensor.role == Role::kHead ||
         tensor.role == Role::kRouter;
}

}  // namespace

std::vector<double> weights_per_token(const Model& model,
                                      int64_t experts_per_token) {
  std::vector<double> weights(head_module(model) + 1, 0);
  const bool tied = is_tied(model);
  for (const Tensor& tensor : model.tensors) {
    const bool as_head = tied && tensor.role == Role::kEmbedding;
    if (!is_multiplied(tensor) && !as_head) continue;
    const double share = tensor.expert < 0
                             ? 1
                             : static_cast<double>(experts_per_token) /
                                   static_cast<double>(model.num_experts);
    const size_t module = tensor.layer >= 0
                              ? static_cast<size_t>(tensor.layer) + 1
                              : head_module(model);
    weights[module] += share * static_cast<double>(tensor.elements());
  }
  return weights;
}

std::vector<PassSeconds> compute_seconds(const Model& model,
                                         const ComputeLoad& load) {
  check_load(model, load);
  const std::vector<double> weights =
      weights_per_token(model, load.experts_per_token);
  const double attention =
      static_cast<double>(load.length) * static_cast<double>(load.width);
  const double second = static_cast<double>(load.tokens) /
                        (load.flops_per_second * load.tensor_parallel);
  std::vector<PassSeconds> out(weights.size());
  for (size_t m = 0; m < out.size(); ++m) {
    const bool is_layer = m > 0 && m < head_module(model);
    const double products = (weights[m] + (is_layer ? attention : 0)) * second;
    out[m].forward = kForwardFlops * products;
    out[m].backward = kBackwardFlops * products;
    if (load.recompute) out[m].backward += out[m].forward;
  }
  return out;
}

}  // namespace canzona
