// A bench over a model of a few thousand parameters, for tests.
#pragma once

#include <memory>

#include "canzona/measure/zero_bench.h"
#include "canzona/plan/make_plan.h"
#include "canzona/train/test_training.h"

namespace canzona {

struct TestBenchWish {
  std::string mesh = "dp=2";
  std::string rule = "muon";
  int64_t micro_batches = 1;
  int32_t ranks_per_node = 2;
};

inline Plan zero_plan(const TestBenchWish& wish, const TrainSettings& settings,
                      const ZeroSizes& sizes, const Link& link = {}) {
  Plan plain = test_plan({.mesh = wish.mesh, .rule = wish.rule}, settings);
  PlanOptions options = plain.options;
  options.zero.sizes = sizes;
  options.ranks_per_node = wish.ranks_per_node;
  put_link(link, options);
  const auto rule = make_rule_facts(plain.rule, plain.rule_options);
  return make_plan({plain.model, plain.mesh, *rule, options});
}

inline TrainSettings bench_settings(const TestBenchWish& wish) {
  TrainSettings settings = test_settings({});
  settings.global_batch = settings.decoder.micro_batch * wish.micro_batches *
                          parse_mesh(wish.mesh).homes();
  return settings;
}

// All cells of the mesh, with one or two iterations each.
inline ZeroBenchRequest test_bench(const TestBenchWish& wish,
                                   const Batches& batches) {
  ZeroBenchRequest request;
  request.settings = bench_settings(wish);
  request.batches = &batches;
  request.mesh = parse_mesh(wish.mesh);
  request.sizes = all_zero_sizes(request.mesh.homes());
  request.overlaps = {Overlap::kNone, Overlap::kMain, Overlap::kBackground};
  request.plan = [=, settings = request.settings](const ZeroSizes& sizes,
                                                  const Link& link) {
    return zero_plan(wish, settings, sizes, link);
  };
  request.communicator.ranks_per_node = wish.ranks_per_node;
  request.trial = {.warmup = 1, .steps = 1};
  request.repeats = 1;
  request.wants_limits = false;
  return request;
}

}  // namespace canzona
