// The tests of this folder share random numbers that are the same on every
// machine, models made by hand, plans in one line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "canzona/base/rooms.h"
#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/plan.h"
#include "canzona/shapes/read_model.h"

namespace canzona::plan {

// SplitMix64. The standard's distributions differ between libraries.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Both ends included.
  int64_t between(int64_t low, int64_t high) {
    const auto width = static_cast<uint64_t>(high - low) + 1;
    return low + static_cast<int64_t>(next() % width);
  }
  int32_t small(int32_t low, int32_t high) {
    return static_cast<int32_t>(between(low, high));
  }
  bool coin() { return next() % 2 == 0; }
  template <class Item>
  Item pick(const std::vector<Item>& items) {
    return items[next() % items.size()];
  }
  template <class Item>
  void shuffle(std::vector<Item>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[next() % i]);
    }
  }

 private:
  uint64_t state_;
};

// A tensor for the matrix rule, outside the layers unless `layer` is given.
inline Tensor matrix_tensor(const std::string& name, int64_t rows, int64_t cols,
                            Cut cut = Cut::kNone, int32_t layer = -1) {
  Tensor t;
  t.name = name;
  t.shape = {rows, cols};
  t.cut = cut;
  t.layer = layer;
  t.matrix_rule = true;
  return t;
}

// A vector for AdamW.
inline Tensor adamw_tensor(const std::string& name, int64_t elements,
                           int32_t layer = -1) {
  Tensor t;
  t.name = name;
  t.shape = {elements};
  t.role = Role::kNorm;
  t.layer = layer;
  return t;
}

inline Model model_of(std::vector<Tensor> tensors) {
  Model model;
  model.name = "by hand";
  model.tensors = std::move(tensors);
  for (const Tensor& t : model.tensors) {
    model.num_layers = std::max(model.num_layers, t.layer + 1);
    model.num_experts = std::max(model.num_experts, t.expert + 1);
  }
  return model;
}

// Square matrices m0, m1, … with these sides.
inline Model squares(const std::vector<int64_t>& sides) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < sides.size(); ++i) {
    tensors.push_back(matrix_tensor(cat("m", i), sides[i], sides[i]));
  }
  return model_of(std::move(tensors));
}

// Matrices m0, m1, … of up to `most` rows and columns that tp divides where it
// cuts them.
inline Model random_matrices(Random& random, int64_t count, int64_t most,
                             int32_t tp) {
  std::vector<Tensor> tensors;
  for (int64_t i = 0; i < count; ++i) {
    const Cut cut = random.pick<Cut>({Cut::kNone, Cut::kRows, Cut::kColumns});
    int64_t rows = random.between(1, most);
    int64_t cols = random.between(1, most);
    if (cut == Cut::kRows) rows *= tp;
    if (cut == Cut::kColumns) cols *= tp;
    tensors.push_back(matrix_tensor(cat("m", i), rows, cols, cut));
  }
  return model_of(std::move(tensors));
}

struct RuleChoice {
  std::string name = "muon";
  RuleOptions options = {};
};

inline Plan plan_of(const Model& model, const std::string& mesh,
                    const PlanOptions& options = {},
                    const RuleChoice& rule = {}) {
  const auto facts = make_rule_facts(rule.name, rule.options);
  return make_plan({model, parse_mesh(mesh), *facts, options});
}

// A plan made by hand gets its parts, in which nothing is decided.
inline void add_parts(Plan& plan) {
  derive_request(plan);
  make_parts(plan);
}

// Copies changes in the request of a plan with one part to that part.
inline Plan passed_on(Plan plan) {
  PlanPart& part = plan.parts.front();
  static_cast<SettledRequest&>(part) = plan;
  part.options = options_of_part(plan, part);
  derive(plan);
  return plan;
}

// Options with one strategy and its defaults.
inline PlanOptions with_strategy(const std::string& name,
                                 const std::string& micro_groups = "") {
  PlanOptions options;
  options.strategy = name;
  options.micro_groups = micro_groups;
  return options;
}

// Largest over mean.
inline double max_over_mean(const std::vector<double>& values) {
  double sum = 0, most = 0;
  for (double v : values) {
    sum += v;
    most = std::max(most, v);
  }
  return most * static_cast<double>(values.size()) / sum;
}

}  // namespace canzona::plan
