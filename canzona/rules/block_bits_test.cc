// Where a matrix splits into blocks, a block alone has the bits that it has in
// the matrix: its weights, and its states at the places that the facts give.
#include <gmock/gmock.h>

#include "canzona/base/text.h"
#include "canzona/rules/test_matrices.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::block_bits_test {
namespace {

constexpr double kRate = 0.01;
constexpr int kSteps = 20;

using Values = std::vector<float>;

// A rectangle of a tensor of any order, row-major.
Values box_of(const Values& whole, const Dims& shape, const Dims& first,
              const Dims& count) {
  Values out;
  for (int64_t i = 0; i < num_elements(count); ++i) {
    int64_t at = 0, stride = 1, rest = i;
    for (size_t d = shape.size(); d-- > 0;) {
      at += (first[d] + rest % count[d]) * stride;
      rest /= count[d];
      stride *= shape[d];
    }
    out.push_back(whole[static_cast<size_t>(at)]);
  }
  return out;
}

Values numbers(int64_t count, uint64_t seed) {
  Stream stream(seed);
  Values values(static_cast<size_t>(count));
  for (float& x : values) x = static_cast<float>(stream.uniform());
  return values;
}

struct Falling {
  std::string rule;
  RuleOptions options;
  Dims dims;
  MatrixShape block;
};

std::string name_of(const Falling& a_case) {
  std::string out = cat(a_case.rule, " ", to_string(a_case.dims));
  for (const auto& [name, value] : a_case.options)
    out += cat(" ", name, "=", value);
  return out;
}

std::vector<Falling> falling() {
  std::vector<Falling> cases;
  const auto add = [&](const std::string& rule, RuleOptions options) {
    options["precondition_frequency"] = "3";
    options["max_preconditioner_dim"] = "4";
    if (rule == "soap") options["long_sides"] = "cut";
    cases.push_back({rule, options, {8, 12}, {4, 4}});
    cases.push_back({rule, options, {10, 7}, {4, 4}});
    cases.push_back({rule, options, {3, 11}, {3, 4}});
  };
  for (const RuleOptions& options : std::vector<RuleOptions>{
           {},
           {{"phases", "2"}},
           {{"root", "eigen"}, {"grafting", "none"}},
           {{"kl", "on"}, {"trace_scaling", "on"}},
           {{"exponent", "0,0.5"}, {"beta1", "0"}},
           {{"start_step", "never"}},
           {{"classic_momentum", "0.9"}, {"decay_form", "l2"}},
           {{"grafting", "adagrad"}, {"drop_weighting", "on"}}})
    add("shampoo", options);
  for (const RuleOptions& options : std::vector<RuleOptions>{
           {},
           {{"refresh", "eigh"}},
           {{"kl", "on"}},
           {{"grafting", "adam"}, {"momentum_basis", "original"}},
           {{"ignored_dims", "0"}},
           {{"decay_form", "l2"}}})
    add("soap", options);
  return cases;
}

// One block of a case, stepped beside the whole matrix.
class LoneBlock {
 public:
  LoneBlock(const Falling& a_case, int64_t number, const Values& weights)
      : a_case_(a_case), number_(number) {
    const int64_t rows = a_case.block.rows, cols = a_case.block.cols;
    const int64_t across = (a_case.dims[1] + cols - 1) / cols;
    first_ = {number / across * rows, number % across * cols};
    count_ = {std::min(rows, a_case.dims[0] - first_[0]),
              std::min(cols, a_case.dims[1] - first_[1])};
    tensor_ = std::make_unique<TestTensor<float>>(
        make_rule(a_case.rule, a_case.options, DType::kFp32), count_,
        part_of(weights));
  }

  Values part_of(const Values& whole) const {
    return box_of(whole, a_case_.dims, first_, count_);
  }
  void step(Engine& engine, const Values& grad) {
    tensor_->step(engine, part_of(grad), kRate);
  }
  void expect_in(const TestTensor<float>& whole) const {
    EXPECT_EQ(tensor_->weights, part_of(whole.weights));
    const std::vector<BlockState> places = whole.rule().facts().block_states(
        {a_case_.dims[0], a_case_.dims[1]}, number_);
    size_t next = 0;
    for (const StateFact& own : tensor_->states.facts) {
      if (own.lives == Lives::kWithShard) continue;
      ASSERT_LT(next, places.size());
      const BlockState& place = places[next++];
      EXPECT_EQ(
          tensor_->state(own.name),
          box_of(whole.state(place.name), place.shape, place.first, own.shape))
          << own.name << " in " << place.name;
    }
    EXPECT_EQ(next, places.size());
  }

 private:
  const Falling& a_case_;
  int64_t number_;
  Dims first_, count_;
  std::unique_ptr<TestTensor<float>> tensor_;
};

TEST(BlockBits, ABlockAloneIsTheBlockInItsMatrix) {
  const auto engine = make_cpu_engine();
  for (const Falling& c : falling()) {
    SCOPED_TRACE(name_of(c));
    const int64_t count = num_elements(c.dims);
    const Values start = numbers(count, 1);
    TestTensor<float> whole(make_rule(c.rule, c.options, DType::kFp32), c.dims,
                            start);
    ASSERT_EQ(whole.rule().facts().block({c.dims[0], c.dims[1]}), c.block);
    const int64_t num_blocks = ((c.dims[0] + c.block.rows - 1) / c.block.rows) *
                               ((c.dims[1] + c.block.cols - 1) / c.block.cols);
    std::vector<LoneBlock> blocks;
    for (int64_t b = 0; b < num_blocks; ++b) blocks.emplace_back(c, b, start);
    for (int t = 1; t <= kSteps; ++t) {
      const Values grad = numbers(count, 10 + static_cast<uint64_t>(t));
      whole.step(*engine, grad, kRate);
      for (LoneBlock& block : blocks) block.step(*engine, grad);
    }
    for (const LoneBlock& block : blocks) block.expect_in(whole);
  }
}

// Options that make blocks depend on each other or on the whole tensor, and
// edges that would be vectors.
TEST(BlockBits, WhatHangsTogetherDoesNotFallApart) {
  const RuleOptions cut = {{"max_preconditioner_dim", "4"}};
  const auto with = [&](RuleOptions more) {
    more.insert(cut.begin(), cut.end());
    return more;
  };
  const auto whole = [](const std::string& rule, const RuleOptions& options,
                        MatrixShape shape) {
    EXPECT_EQ(make_rule_facts(rule, options)->block(shape), shape)
        << rule << " " << to_string(shape);
  };
  const RuleOptions soap = with({{"long_sides", "cut"}});
  EXPECT_EQ(make_rule_facts("soap", soap)->block({8, 8}), (MatrixShape{4, 4}));
  whole("muon", {}, {4096, 8192});
  whole("adamw", {}, {8, 8});
  whole("shampoo", cut, {4, 4});   // one block
  whole("shampoo", cut, {9, 8});   // the last row of blocks has one row
  whole("shampoo", cut, {1, 16});  // a vector
  whole("shampoo", cut, {0, 16});
  whole("shampoo", with({{"merge", "1"}}), {6, 6});  // 2 x 2 would be merged
  whole("soap", cut, {8, 8});                        // a long side is not cut
  for (const char* together : {"normalize_grads", "max_update_rms"}) {
    RuleOptions options = soap;
    options[together] = std::string(together) == "max_update_rms" ? "1" : "on";
    whole("soap", options, {8, 8});
  }
}

}  // namespace
}  // namespace canzona::rules::block_bits_test
