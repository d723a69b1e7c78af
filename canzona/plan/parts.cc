#include "canzona/plan/parts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

bool has_experts(const Model& model) {
  return std::ranges::any_of(model.tensors,
                             [](const Tensor& t) { return t.expert >= 0; });
}

std::string part_name(const Plan& whole, size_t part) {
  if (part == 0) return "dense tensors";
  return whole.mesh.ep == 1 ? "experts" : cat("experts of ep ", part - 1);
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
    throw UsageError(cat("--zero-experts ", to_string(options.experts), ": ",
                         model.name, " has no experts"));
  if (!asked) out.experts = experts_beside(out.sizes, mesh);
  check_zero(out.experts, mesh.expert_homes(), "--zero-experts");
  const bool both_plain = is_plain(out.sizes, mesh.homes()) &&
                          is_plain(out.experts, mesh.expert_homes());
  const bool alike = mesh.ep == 1 && out.sizes == out.experts;
  if (both_plain || alike) out.experts = {};
  return out.experts.z1 > 0 ? out : settled(out, mesh.homes());
}

int32_t part_of(const Mesh& mesh, const Model& model, const Tensor& tensor) {
  if (tensor.expert < 0) return 0;
  return 1 + (mesh.ep == 1 ? 0 : ep_of(mesh, model, tensor));
}

std::vector<int32_t> tensors_of_part(const Plan& whole, int32_t part) {
  std::vector<int32_t> numbers;
  for (size_t t = 0; t < whole.model.tensors.size(); ++t)
    if (part_of(whole.mesh, whole.model, whole.model.tensors[t]) == part)
      numbers.push_back(static_cast<int32_t>(t));
  return numbers;
}

Model model_of_part(const Plan& whole, int32_t part) {
  Model model = whole.model;
  model.tensors.clear();
  for (int32_t t : tensors_of_part(whole, part))
    model.tensors.push_back(whole.model.tensors[static_cast<size_t>(t)]);
  return model;
}

Mesh mesh_of_part(const Mesh& mesh, int32_t part) {
  Mesh out = mesh;
  out.ep = 1;
  if (part == 0) out.dp = mesh.dp * mesh.ep;
  return out;
}

// The cap is on the sum of a rank's parts.
PlanOptions options_of_part(const Plan& whole, int32_t part) {
  const Mesh mesh = mesh_of_part(whole.mesh, part);
  PlanOptions options = whole.options;
  if (part > 0) options.zero.sizes = options.zero.experts;
  options.zero.experts = {};
  options.zero = settled(options.zero, mesh.homes());
  options.memory_cap_bytes = 0;
  return options;
}

PartPlace place_of_part(const Plan& whole, int32_t part) {
  PartPlace place;
  if (part > 0) place = {.ep = whole.mesh.ep, .e = part - 1, .phase = {}};
  for (size_t i = 0; i < whole.parts.size() && std::cmp_less(i, part); ++i)
    place.first_bucket += static_cast<int32_t>(whole.parts[i].buckets.size());
  for (int32_t t : tensors_of_part(whole, part)) {
    const auto i = static_cast<size_t>(t);
    place.phase.insert(place.phase.end(),
                       whole.phase.begin() + whole.first_matrix[i],
                       whole.phase.begin() + whole.first_matrix[i + 1]);
  }
  return place;
}

Plan undecided_part(const Plan& whole, int32_t part) {
  Plan out;
  out.model = model_of_part(whole, part);
  out.mesh = mesh_of_part(whole.mesh, part);
  out.rule = whole.rule;
  out.rule_options = whole.rule_options;
  out.options = options_of_part(whole, part);
  out.cost_basis = whole.cost_basis;
  out.traffic = whole.traffic;
  out.matrices = split_into_matrices(out.model, out.options.splits);
  for (int32_t t : tensors_of_part(whole, part)) {
    const auto i = static_cast<size_t>(t);
    out.costs.insert(out.costs.end(),
                     whole.costs.begin() + whole.first_matrix[i],
                     whole.costs.begin() + whole.first_matrix[i + 1]);
  }
  out.place = place_of_part(whole, part);
  out.grid = fold(out.mesh, out.options.zero.sizes);
  return out;
}

std::vector<RankInPart> parts_of_rank(const Plan& whole, int32_t world_rank) {
  const Mesh& mesh = whole.mesh;
  const int32_t stage = world_rank / mesh.ranks_per_stage();
  const int32_t home = world_rank / mesh.tp % mesh.homes();
  const int32_t e = home / mesh.cp % mesh.ep;
  const int32_t x = home / (mesh.cp * mesh.ep) * mesh.cp + home % mesh.cp;
  const Mesh of_experts = mesh_of_part(mesh, 1 + e);
  return {
      {.part = 0, .rank = world_rank},
      {.part = 1 + e, .rank = of_experts.rank(stage, x, world_rank % mesh.tp)}};
}

}  // namespace canzona
