#include "canzona/sim/workload.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona::sim {
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
  require(load.attention_flops_per_second >= 0,
          "flops per second of attention are not negative");
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
      load.weights.empty() ? weights_per_token(model, load.experts_per_token)
                           : load.weights;
  // In weights that would take as long.
  const double attention = static_cast<double>(load.length) *
                           static_cast<double>(load.width) *
                           load.flops_per_second / load.attention_rate();
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

namespace {

// The rate of messages to another block of level - 1, which cross all levels
// between nodes up to this one.
double rate_up_to(const std::vector<LinkLevel>& levels, size_t level) {
  double rate = levels[1].rate();
  for (size_t l = 2; l <= level; ++l) rate = std::min(rate, levels[l].rate());
  return rate;
}

}  // namespace

Links links_of(const std::vector<LinkLevel>& levels) {
  const LinkLevel& node = levels.front();
  const LinkLevel& next = levels[levels.size() > 1 ? 1 : 0];
  return {.intra_bytes_per_second = node.rate(),
          .inter_bytes_per_second = next.rate(),
          .latency_seconds = next.latency_seconds,
          .nominal = false,
          .intra_latency_seconds = node.latency_seconds};
}

size_t level_of(const std::vector<LinkLevel>& levels, int32_t a, int32_t b) {
  for (size_t l = 0; l + 1 < levels.size(); ++l)
    if (a / levels[l].ranks == b / levels[l].ranks) return l;
  return levels.size() - 1;
}

FarLinks far_links(const std::vector<LinkLevel>& levels,
                   const PeersByLevel& peers) {
  FarLinks far;
  double count = 0, weighted = 0;
  for (size_t l = 1; l < peers.size(); ++l) {
    if (peers[l] == 0) continue;
    const auto here = static_cast<double>(peers[l]);
    count += here;
    weighted += here * levels[1].rate() / rate_up_to(levels, l);
    far.added_latency_seconds =
        std::max(far.added_latency_seconds,
                 levels[l].latency_seconds - levels[1].latency_seconds);
  }
  if (count > 0) far.scale = weighted / count;
  return far;
}

// Pairwise: every rank sends each other rank its share, which comes back
// summed.
double tp_sum_seconds(const Plan& plan, const Workload& workload) {
  const int64_t tp = plan.mesh.tp;
  if (tp == 1 || workload.hidden == 0) return 0;
  const int64_t share = workload.compute.tokens * workload.hidden *
                        workload.bytes_per_activation / tp;
  const int64_t segments =
      (share + workload.segment_bytes - 1) / workload.segment_bytes;
  // Counts the other ranks of a home, as its first rank sees them.
  int64_t near = 0, far = 0;
  for (int32_t t = 1; t < plan.mesh.tp; ++t) {
    const int32_t other = node_of(plan.options, plan.mesh.rank(0, 0, t));
    ++(other == node_of(plan.options, 0) ? near : far);
  }
  const auto half = [&](int64_t messages) {
    Transfer transfer;
    transfer.bytes = {.sent_intra = near * share,
                      .sent_inter = far * share,
                      .received_intra = near * share,
                      .received_inter = far * share};
    transfer.messages_intra = near * messages;
    transfer.messages_inter = far * messages;
    return seconds_alone(transfer, plan.options.links, 0);
  };
  return half(segments) + half(1);
}

void add_tp_sums(const Plan& plan, const Workload& workload,
                 std::vector<PassSeconds>& modules) {
  const double sum = tp_sum_seconds(plan, workload);
  if (sum == 0) return;
  for (size_t m = 0; m < modules.size(); ++m) {
    const bool is_head = m + 1 == modules.size();
    const bool is_layer = m > 0 && !is_head;
    const double forward = is_layer ? 2 * sum : is_head ? 0 : sum;
    const double backward = is_layer ? 2 * sum : is_head ? sum : 0;
    modules[m].forward += forward;
    modules[m].backward += backward;
    if (workload.compute.recompute && is_layer) modules[m].backward += forward;
  }
}

}  // namespace canzona::sim
