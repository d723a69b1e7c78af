// Meshes by hand, as a search could have found them, for tests of their view.
//
//   const SampleMeshes sample("a model");
//   Document view = mesh_view(sample.shown());
#pragma once

#include <memory>
#include <string>

#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/report/mesh_view.h"

namespace canzona::report {

// A layout that takes ten seconds: six of compute, one of bubble, and so on.
inline WeighedMesh weighed_sample(const Mesh& mesh, const ZeroSizes& sizes) {
  WeighedMesh out;
  out.choice = {.mesh = mesh,
                .dense = sizes,
                .tokens = 8192,
                .num_micro_batches = 4,
                .recompute = mesh.tp == 1};
  out.parts = {.compute = 6,
               .tp_sums = 0.5,
               .expert_exchanges = 0,
               .stage_sends = 0.25,
               .gathers = 0.5,
               .scatters = 0.25,
               .sums = 0.5,
               .bubble = 1,
               .step = 1};
  out.time.seconds = out.parts.total();
  out.memory.parameters = Bytes(int64_t{20} << 30);
  out.memory.states = Bytes(int64_t{10} << 30);
  out.activations = int64_t{5} << 30;
  out.slow_bytes = 3 << 20;
  out.fast_bytes = 7 << 20;
  out.tokens_per_second = 1e6;
  out.share_of_peak = 0.42;
  return out;
}

struct SampleMeshes {
  explicit SampleMeshes(const std::string& name)
      : model(toy_model()), rule(make_rule_facts(kDefaultRule, {})) {
    model.name = name;
    question.model = &model;
    question.ranks = 64;
    question.rule = rule.get();
    question.options.memory_cap_bytes = int64_t{40} << 30;
    question.work.compute.length = 4096;
    question.global_batch = 4 << 20;
    answer.kinds = {{.kind = LayoutKind::kTp,
                     .weighed = weighed_sample({.dp = 8, .tp = 8}, {8, 1, 1}),
                     .reason = "the fastest"},
                    {.kind = LayoutKind::kHierarchical,
                     .weighed = weighed_sample({.dp = 64}, {64, 8, 8}),
                     .reason = "11 % slower: bubble 8 %, 3 % exposed"}};
    answer.counts = {.in_space = 12345, .over_cap = 300, .simulated = 17};
    answer.not_searched = {"virtual pipeline stages"};
  }

  ShownMeshes shown() const {
    ShownMeshes out{.question = question,
                    .answer = answer,
                    .inputs = {"400 Tflop/s, nominal"}};
    out.commands = {{"canzona train", "canzona train --mesh dp=8,tp=8", ""},
                    {"PyTorch", "", "it has no stages"}};
    const WeighedMesh today = answer.best();
    WeighedMesh other = weighed_sample({.dp = 16, .tp = 4}, {16, 4, 4});
    other.time.seconds = 8;
    MeshChange none{.what = "half the batch"};
    none.why_none = "no layout fits";
    out.changes = {{"links half as fast", other, today},
                   {"10 % less memory", today, today},
                   none};
    return out;
  }

  Model model;
  std::unique_ptr<RuleFacts> rule;
  MeshQuestion question;
  MeshAnswer answer;
};

}  // namespace canzona::report
