#include "canzona/report/test_sample.h"

#include <algorithm>

#include "canzona/base/digest.h"
#include "canzona/base/text.h"
#include "canzona/report/shown_plan.h"

namespace canzona::report {
namespace {

constexpr int64_t kHidden = 1024;
constexpr int32_t kLayersPerBucket = 4;
constexpr double kSecondsPerTick = 1e-14;

void add_tensor(Model& model, std::string name, std::vector<int64_t> shape,
                Role role, Cut cut, int32_t layer) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  tensor.role = role;
  tensor.cut = cut;
  tensor.layer = layer;
  tensor.matrix_rule = role == Role::kMatrix;
  model.tensors.push_back(std::move(tensor));
}

void add_layer(Model& model, int32_t layer, int32_t experts) {
  const std::string at = cat("layers.", layer, ".");
  const auto add = [&](const std::string& name, int64_t rows, int64_t cols,
                       Cut cut) {
    add_tensor(model, at + name, {rows, cols}, Role::kMatrix, cut, layer);
  };
  add("attn.proj", kHidden, 2 * kHidden, Cut::kColumns);
  add("attn.qkv", 3 * kHidden, kHidden, Cut::kRows);
  add("mlp.fc1", 6 * kHidden, kHidden, Cut::kRows);
  add("mlp.fc2", kHidden, 3 * kHidden, Cut::kColumns);
  for (int32_t e = 0; e < experts; ++e) {
    const std::string expert = cat("mlp.experts.", e, ".");
    add(expert + "gate_proj.weight", kHidden / 2, kHidden, Cut::kRows);
    add(expert + "up_proj.weight", kHidden / 2, kHidden, Cut::kRows);
    add(expert + "down_proj.weight", kHidden, kHidden / 2, Cut::kColumns);
  }
  add_tensor(model, at + "norm", {kHidden}, Role::kNorm, Cut::kNone, layer);
}

Model make_model(const Sample& sample) {
  Model model;
  model.name = "sample";
  model.num_layers = sample.layers;
  add_tensor(model, "embedding", {32 * kHidden, kHidden}, Role::kEmbedding,
             Cut::kRows, -1);
  for (int32_t layer = 0; layer < sample.layers; ++layer)
    add_layer(model, layer, sample.experts);
  add_tensor(model, "head", {32 * kHidden, kHidden}, Role::kHead, Cut::kRows,
             -1);
  for (Tensor& tensor : model.tensors) tensor.matrix_rule &= sample.matrices;
  if (!sample.first_name.empty()) model.tensors[0].name = sample.first_name;
  return model;
}

int32_t stage_of_layer(const Sample& sample, int32_t layer) {
  if (layer < 0 || sample.layers == 0) return 0;
  return layer * sample.mesh.pp / sample.layers;
}

// Makes one bucket for every few layers, and one buffer per stage.
void make_buckets(PlanPart& plan, const Sample& sample) {
  for (int32_t stage = 0; stage < sample.mesh.pp; ++stage)
    plan.buffers.push_back({stage, -1, sample.mesh.homes()});
  const int32_t count =
      std::max(1, (sample.layers + kLayersPerBucket - 1) / kLayersPerBucket);
  plan.buckets.resize(static_cast<size_t>(count));
  plan.bucket_of.resize(plan.model.tensors.size());
  for (bool matrix_rule : {true, false}) {
    for (size_t i = 0; i < plan.model.tensors.size(); ++i) {
      const Tensor& tensor = plan.model.tensors[i];
      if (tensor.matrix_rule != matrix_rule) continue;
      const int32_t b = std::max(0, tensor.layer) / kLayersPerBucket;
      Bucket& bucket = plan.buckets[static_cast<size_t>(b)];
      bucket.buffer = stage_of_layer(sample, b * kLayersPerBucket);
      bucket.tensors.push_back(static_cast<int32_t>(i));
      bucket.num_matrix_tensors += matrix_rule ? 1 : 0;
      plan.bucket_of[i] = b;
    }
  }
}

// Assigns homes by position in the bucket; crowded samples favour early homes.
void deal_homes(PlanPart& plan, const Sample& sample) {
  plan.home.assign(plan.model.tensors.size(), kEveryHome);
  const int32_t homes = sample.mesh.homes();
  for (const Bucket& bucket : plan.buckets) {
    for (int32_t i = 0; i < bucket.num_matrix_tensors; ++i) {
      const double share =
          static_cast<double>(i) / std::max(1, bucket.num_matrix_tensors);
      const double skewed = sample.crowded ? share * share : share;
      plan.home[static_cast<size_t>(bucket.tensors[static_cast<size_t>(i)])] =
          std::min(homes - 1, static_cast<int32_t>(skewed * homes));
    }
  }
}

void add_matrices(PlanPart& plan) {
  for (size_t i = 0; i < plan.model.tensors.size(); ++i) {
    plan.first_matrix.push_back(static_cast<int32_t>(plan.matrices.size()));
    const Tensor& tensor = plan.model.tensors[i];
    if (!tensor.matrix_rule) continue;
    const int64_t rows = tensor.rows();
    const int64_t cols = tensor.cols();
    const auto number = static_cast<int32_t>(plan.matrices.size());
    plan.matrices.push_back({static_cast<int32_t>(i), -1, 0, rows, cols});
    plan.costs.push_back(
        {Ticks{20 * rows * cols * std::min(rows, cols)}, Ticks{0}});
    plan.owners.push_back(number % plan.mesh.tp);
    plan.micro_group.push_back(number / (2 * plan.mesh.tp) % 3);
  }
  plan.first_matrix.push_back(static_cast<int32_t>(plan.matrices.size()));
  plan.phase.assign(plan.matrices.size(), 0);
}

std::vector<RankCost> make_ranks(const PlanPart& plan) {
  std::vector<RankCost> ranks(static_cast<size_t>(plan.mesh.world()));
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto some = static_cast<int64_t>(r % 7) << 20;
    ranks[r].memory = {Bytes{3 << 28},          Bytes{3 << 28},
                       Bytes{(1 << 28) + some}, Bytes{(1 << 28) + 2 * some},
                       Bytes{1 << 26},          Bytes{}};
    ranks[r].wire[0] = {int64_t{1} << 20, (int64_t{1} << 24) + some, 0, 0};
    ranks[r].wire[2] = {(int64_t{1} << 22) + some, 0, 0, 0};
  }
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    for (int32_t rank : owner_ranks(plan, static_cast<int32_t>(m))) {
      RankCost& cost = ranks[static_cast<size_t>(rank)];
      cost.every_step += plan.costs[m].every_step;
      ++cost.num_matrices;
    }
  }
  return ranks;
}

void summarise(ReportPlan& shown) {
  Plan& plan = shown.plan;
  const Spread loads = spread_of(period_loads(plan, shown.ranks));
  int64_t largest = 0;
  for (const MatrixCost& cost : plan.costs)
    largest = std::max(largest, cost.every_step.value());
  PlanSummary& summary = plan.summary;
  summary.makespan = Ticks{static_cast<int64_t>(loads.max)};
  summary.bound = Ticks{std::max(largest, static_cast<int64_t>(loads.mean))};
  summary.mean = loads.mean;
  for (const RankCost& rank : shown.ranks)
    summary.idle_ranks += rank.num_matrices == 0 ? 1 : 0;
  summary.bytes_per_rank_max = Bytes{1 << 25};
  summary.memory_per_rank_max = Bytes{int64_t{33} << 26};
  summary.memory_per_rank_mean = 2.05e9;
  summary.step_seconds_mean = loads.max * kSecondsPerTick;
  summary.step_seconds_worst = summary.step_seconds_mean;
  Balance& balance = shown.balance;
  balance.idle_ranks = summary.idle_ranks;
  if (!(loads.mean > 0)) return;
  balance.makespan_over_mean = loads.max_over_mean();
  balance.bound_over_mean =
      static_cast<double>(summary.bound.value()) / loads.mean;
  balance.makespan_over_bound =
      loads.max / static_cast<double>(summary.bound.value());
}

}  // namespace

ReportPlan make_sample(const Sample& sample) {
  ReportPlan shown;
  PlanPart plan;
  plan.model = make_model(sample);
  plan.mesh = sample.mesh;
  plan.grid = sample.mesh;
  plan.rule = "muon";
  plan.rule_options = {{"newton_schulz", "gram"}, {"steps", "5"}};
  plan.options.strategy = sample.strategy;
  plan.options.micro_groups = "balanced";
  plan.options.zero.sizes = with_states({}, sample.mesh.homes());
  plan.options.memory_cap_bytes = sample.memory_cap_bytes;
  plan.cost_basis = {"nominal", kSecondsPerTick};
  make_buckets(plan, sample);
  deal_homes(plan, sample);
  add_matrices(plan);
  shown.ranks = make_ranks(plan);
  static_cast<SettledRequest&>(shown.plan) = plan;
  for (size_t t = 0; t < plan.model.tensors.size(); ++t)
    shown.plan.in_part.push_back({0, static_cast<int32_t>(t)});
  shown.plan.parts = {std::move(plan)};
  shown.plan.digest = sha256_hex(sample.strategy);
  summarise(shown);
  return shown;
}

std::vector<ReportPlan> compare_sample(Sample sample) {
  std::vector<ReportPlan> plans;
  for (const char* strategy : {"layerwise", "start_offset", "balanced"}) {
    sample.strategy = strategy;
    sample.crowded = sample.strategy != "balanced";
    plans.push_back(make_sample(sample));
  }
  return plans;
}

}  // namespace canzona::report
