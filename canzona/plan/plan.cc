#include "canzona/plan/plan.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/coordinates.h"

namespace canzona {

void OwnerLists::push_back(std::span<const int32_t> ranks) {
  ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
  begin_.push_back(static_cast<uint32_t>(ranks_.size()));
}

std::vector<int32_t> distinct(std::span<const int32_t> owners) {
  if (owners.size() <= 1) return {owners.begin(), owners.end()};
  std::vector<int32_t> out;
  std::set<int32_t> seen;
  for (const int32_t t : owners)
    if (seen.insert(t).second) out.push_back(t);
  return out;
}

int32_t PlanPart::rank_in_whole(int32_t world_rank) const {
  if (given) return given->rank_in_whole(world_rank);
  if (ep == 1) return world_rank;
  const Coordinates at = coordinates_of(mesh, world_rank);
  Mesh whole = mesh;
  whole.ep = ep;
  return whole.rank(at.stage, whole.home_of_expert(at.home, e), at.t);
}

int32_t PlanPart::node_of(int32_t world_rank) const {
  return canzona::node_of(options, rank_in_whole(world_rank));
}

namespace {

// Returns the first matrix of each tensor, and one past the end.
std::vector<int32_t> index_matrices(size_t num_tensors,
                                    const std::vector<Matrix>& matrices) {
  std::vector<int32_t> first(num_tensors + 1, 0);
  for (const Matrix& m : matrices) ++first[static_cast<size_t>(m.tensor) + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  return first;
}

}  // namespace

std::vector<int32_t> phases_by_name(const Model& model,
                                    const std::vector<Matrix>& matrices,
                                    const Splits& splits, int32_t phases) {
  std::vector<int32_t> phase(matrices.size(), 0);
  if (phases <= 1) return phase;
  std::vector<std::pair<std::string, size_t>> names;
  for (size_t m = 0; m < matrices.size(); ++m) {
    names.emplace_back(matrix_name(model, matrices[m], splits), m);
  }
  std::sort(names.begin(), names.end());
  for (size_t i = 0; i < names.size(); ++i) {
    phase[names[i].second] =
        static_cast<int32_t>(i % static_cast<size_t>(phases));
  }
  return phase;
}

void derive_request(SettledRequest& request) {
  request.first_matrix =
      index_matrices(request.model.tensors.size(), request.matrices);
  const auto rule = make_rule_facts(request.rule, request.rule_options);
  request.period = rule->period();
  request.phases = rule->phases();
  request.phase = phases_by_name(request.model, request.matrices,
                                 request.options.splits, request.phases);
}

void derive(PlanPart& part) {
  part.grid = fold(part.mesh, part.options.zero.sizes);
  part.bucket_of.assign(part.model.tensors.size(), -1);
  for (size_t b = 0; b < part.buckets.size(); ++b)
    for (int32_t t : part.buckets[b].tensors)
      part.bucket_of[static_cast<size_t>(t)] = static_cast<int32_t>(b);
}

// Matrices keep the refresh phases that they have in the whole model.
void derive_parts(Plan& plan) {
  int32_t first_bucket = 0;
  for (PlanPart& part : plan.parts) {
    part.rule_options = plan.rule_options;
    part.period = plan.period;
    part.phases = plan.phases;
    part.first_bucket = first_bucket;
    first_bucket += static_cast<int32_t>(part.buckets.size());
    part.phase.clear();
    for (int32_t t : part.tensors) {
      const int32_t* first = plan.first_matrix.data() + t;
      part.phase.insert(part.phase.end(), plan.phase.begin() + first[0],
                        plan.phase.begin() + first[1]);
    }
    derive(part);
  }
}

void derive(Plan& plan) {
  derive_request(plan);
  derive_parts(plan);
}

bool has_experts(const Model& model) {
  return std::ranges::any_of(model.tensors,
                             [](const Tensor& t) { return t.expert >= 0; });
}

ZeroSizes experts_beside(const ZeroSizes& sizes, const Mesh& mesh) {
  if (mesh.ep == 1) return sizes;
  const auto beside = [&](int32_t z) {
    return z % (mesh.ep * mesh.cp) == 0 ? z / mesh.ep : std::gcd(z, mesh.cp);
  };
  return {beside(sizes.z1), beside(sizes.z2), beside(sizes.z3)};
}

ZeroOptions resolve_zero(const ZeroOptions& options, const Mesh& mesh,
                         const Model& model) {
  ZeroOptions out = options;
  out.sizes = with_states(options.sizes, mesh.homes());
  check_zero(out.sizes, mesh.homes());
  const bool asked = options.experts.z1 > 0;
  if (asked && !has_experts(model))
    throw UsageError(cat("zero-experts ", to_string(options.experts), ": ",
                         model.name, " has no experts"));
  if (!asked) out.experts = experts_beside(out.sizes, mesh);
  check_zero(out.experts, mesh.expert_homes(), "zero-experts");
  const bool both_plain = is_plain(out.sizes, mesh.homes()) &&
                          is_plain(out.experts, mesh.expert_homes());
  const bool alike = mesh.ep == 1 && out.sizes == out.experts;
  if (both_plain || alike) out.experts = {};
  return settled(out, mesh.homes());
}

bool cuts_experts_apart(const SettledRequest& whole) {
  return whole.options.zero.experts.z1 > 0;
}

int32_t num_parts(const SettledRequest& whole) {
  return cuts_experts_apart(whole) ? 1 + whole.mesh.ep : 1;
}

PlanOptions options_of_part(const SettledRequest& whole, const PlanPart& part) {
  PlanOptions options = whole.options;
  ZeroOptions& zero = options.zero;
  if (part.of_experts) zero.sizes = zero.experts;
  zero.experts = {};
  // If experts are cut separately, plain parts are sent directly.
  if (cuts_experts_apart(whole) && is_plain(zero.sizes, part.mesh.homes()))
    zero.reach = Reach::kDirect;
  zero = settled(zero, part.mesh.homes());
  options.memory_cap_bytes = 0;
  return options;
}

namespace {

int32_t part_of(const SettledRequest& whole, const Tensor& tensor) {
  if (!cuts_experts_apart(whole) || tensor.expert < 0) return 0;
  return 1 + std::max(ep_of(whole.mesh, whole.model, tensor), 0);
}

// Returns a part without tensors: everything that they share.
PlanPart empty_part(const SettledRequest& whole, int32_t number) {
  PlanPart part;
  part.model.name = whole.model.name;
  part.model.num_layers = whole.model.num_layers;
  part.model.num_experts = whole.model.num_experts;
  part.model.query_heads = whole.model.query_heads;
  part.model.kv_heads = whole.model.kv_heads;
  part.model.fused = whole.model.fused;
  part.model.experts_per_token = whole.model.experts_per_token;
  part.mesh = whole.mesh;
  if (cuts_experts_apart(whole)) {
    part.of_experts = number > 0;
    part.mesh.ep = 1;
    if (!part.of_experts) part.mesh.dp *= whole.mesh.ep;
    part.name = !part.of_experts     ? "dense tensors"
                : whole.mesh.ep == 1 ? "experts"
                                     : cat("experts of ep ", number - 1);
  }
  if (part.of_experts) {
    part.ep = whole.mesh.ep;
    part.e = number - 1;
  }
  part.rule = whole.rule;
  part.rule_options = whole.rule_options;
  part.options = options_of_part(whole, part);
  part.cost_basis = whole.cost_basis;
  part.traffic = whole.traffic;
  part.grid = fold(part.mesh, part.options.zero.sizes);
  return part;
}

}  // namespace

std::vector<PlanPart> parts_without_tensors(const SettledRequest& whole) {
  std::vector<PlanPart> parts;
  for (int32_t i = 0; i < num_parts(whole); ++i)
    parts.push_back(empty_part(whole, i));
  for (PlanPart& part : parts)
    part.costs.reserve(whole.costs.size() / parts.size());
  for (size_t t = 0; t < whole.model.tensors.size(); ++t) {
    const int32_t number = part_of(whole, whole.model.tensors[t]);
    PlanPart& part = parts[static_cast<size_t>(number)];
    part.tensors.push_back(static_cast<int32_t>(t));
    const int32_t* first = whole.first_matrix.data() + t;
    part.costs.insert(part.costs.end(), whole.costs.begin() + first[0],
                      whole.costs.begin() + first[1]);
    part.phase.insert(part.phase.end(), whole.phase.begin() + first[0],
                      whole.phase.begin() + first[1]);
  }
  return parts;
}

void make_parts(Plan& plan) {
  plan.parts = parts_without_tensors(plan);
  plan.in_part.resize(plan.model.tensors.size());
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    PlanPart& part = plan.parts[i];
    part.model.tensors.reserve(part.tensors.size());
    part.matrices.reserve(part.costs.size());
    for (const int32_t number : part.tensors) {
      const auto t = static_cast<size_t>(number);
      const auto own = static_cast<int32_t>(part.model.tensors.size());
      plan.in_part[t] = {static_cast<int32_t>(i), own};
      part.model.tensors.push_back(plan.model.tensors[t]);
      part.first_matrix.push_back(static_cast<int32_t>(part.matrices.size()));
      for (int32_t m = plan.first_matrix[t]; m < plan.first_matrix[t + 1];
           ++m) {
        part.matrices.push_back(plan.matrices[static_cast<size_t>(m)]);
        part.matrices.back().tensor = own;
      }
    }
    part.first_matrix.push_back(static_cast<int32_t>(part.matrices.size()));
  }
  derive_parts(plan);
}

std::vector<RankInPart> parts_of_rank(const Plan& plan, int32_t world_rank) {
  std::vector<RankInPart> parts{{.part = 0, .rank = world_rank}};
  if (!cuts_experts_apart(plan)) return parts;
  const Coordinates at = coordinates_of(plan.mesh, world_rank);
  const int32_t number = 1 + at.ep;
  const Mesh& of_experts = plan.parts[static_cast<size_t>(number)].mesh;
  parts.push_back({.part = number,
                   .rank = of_experts.rank(at.stage, at.expert_home, at.t)});
  return parts;
}

std::span<const PlanPart> kinds_of_parts(const Plan& plan) {
  return std::span(plan.parts).first(cuts_experts_apart(plan) ? 2 : 1);
}

MatrixInPart matrix_in_part(const Plan& plan, int32_t matrix) {
  const auto t =
      static_cast<size_t>(plan.matrices[static_cast<size_t>(matrix)].tensor);
  const TensorInPart& at = plan.in_part[t];
  const PlanPart& part = plan.parts[static_cast<size_t>(at.part)];
  const int32_t first = part.first_matrix[static_cast<size_t>(at.tensor)];
  return {&part, first + matrix - plan.first_matrix[t]};
}

}  // namespace canzona
