// Questions about small models, for the tests of the search over meshes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/shapes/read_model.h"
#include "canzona/sim/mesh_search.h"

namespace canzona::sim {

// A question with its model and rule. Links are slow, so that communication
// matters; nodes have four ranks.
struct AskedMesh {
  Model model;
  std::unique_ptr<RuleFacts> rule = make_rule_facts("muon", {});
  MeshQuestion question = {};

  AskedMesh(Model of, int32_t ranks) : model(std::move(of)) {
    model.experts_per_token = model.num_experts > 0 ? 2 : 0;
    question.model = &model;
    question.ranks = ranks;
    question.rule = rule.get();
    question.options.ranks_per_node = 4;
    question.options.links = {.intra_bytes_per_second = 4e9,
                              .inter_bytes_per_second = 1e9,
                              .latency_seconds = 1e-6,
                              .nominal = false};
    ComputeLoad& load = question.work.compute;
    load.flops_per_second = 2e12;
    load.length = 32;
    load.width = attention_width(model);
    load.experts_per_token = model.experts_per_token;
    question.work.hidden = hidden_width(model);
    question.work.bytes_per_activation = 2;
    question.global_batch = int64_t{ranks} * 32 * 2;
    question.most_planned = INT64_MAX;
  }
  AskedMesh(const AskedMesh&) = delete;
  AskedMesh& operator=(const AskedMesh&) = delete;
};

// A dense model with grouped queries, one with experts, one with a prime number
// of layers, one with a vocabulary of a few words, and one whose first layer
// has no experts and whose head is larger than a layer.
inline Model searched_model(int number) {
  switch (number) {
    case 0:
      return read_model("qwen3-8b", {.layers = 4, .divisor = 16});
    case 1:
      return toy_moe(2, 4);
    case 2:
      return read_model("qwen3-0.6b", {.layers = 3, .divisor = 16});
    case 4:
      return read_model("deepseek-v2", {.layers = 2, .divisor = 32});
    default:
      return toy_model(2);
  }
}
inline constexpr int kNumSearchedModels = 5;

inline std::vector<ZeroSizes> sizes_of_experts(const Model& model,
                                               const Mesh& mesh) {
  if (model.num_experts == 0) return {ZeroSizes{}};
  return all_zero_sizes(mesh.expert_homes());
}

// Every layout of the space, counted out without bounds. Limits on sizes of
// ZeRO are left out.
inline std::vector<MeshChoice> every_choice(const MeshQuestion& question) {
  std::vector<MeshChoice> all;
  const MeshLimits& limits = question.limits;
  for (const Mesh& mesh :
       meshes_in_space(*question.model, question.ranks,
                       question.options.ranks_per_node, question.limits)
           .meshes)
    for (const BatchSplit& split :
         batch_splits(question.global_batch, question.work.compute.length,
                      mesh.homes(), question.limits))
      for (const ZeroSizes& dense : all_zero_sizes(mesh.homes()))
        for (const ZeroSizes& experts : sizes_of_experts(*question.model, mesh))
          for (const bool recompute : {false, true})
            for (const Reach reach : {Reach::kDirect, Reach::kPerNode})
              if (limits.recompute.value_or(recompute) == recompute &&
                  limits.reach.value_or(reach) == reach)
                all.push_back({mesh, dense, experts, split.tokens,
                               split.num_micro_batches, recompute, reach});
  return all;
}

}  // namespace canzona::sim
