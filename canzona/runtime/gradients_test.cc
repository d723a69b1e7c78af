#include "canzona/runtime/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "canzona/base/error.h"
#include "canzona/comm/wire_ops.h"
#include "canzona/linalg/engine.h"
#include "canzona/plan/schedule/rank_layout.h"
#include "canzona/shapes/architecture.h"

namespace canzona::runtime::gradients_test {
namespace {

using Values = std::vector<float>;

const Model& tiny() {
  static const Model model = generate_model({.layers = 1,
                                             .hidden = 24,
                                             .ffn = 32,
                                             .vocab = 40,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .head_dim = 6,
                                             .qk_norm = true},
                                            "tiny", /*fused=*/true);
  return model;
}

Values whole(const Tensor& tensor, const GradientShare& share) {
  Values out(static_cast<size_t>(tensor.elements()));
  make_gradient(share, tensor, 1, 0, out);
  return out;
}

Values mean(const Tensor& tensor, GradientKind kind, int32_t num_homes,
            int64_t step) {
  std::vector<Values> pieces;
  std::vector<const std::byte*> pointers;
  for (int32_t home = 0; home < num_homes; ++home)
    pieces.push_back(whole(tensor, {kind, home, num_homes, step}));
  for (const Values& piece : pieces)
    pointers.push_back(reinterpret_cast<const std::byte*>(piece.data()));
  Values sum(pieces[0].size());
  std::vector<std::byte> scratch(static_cast<size_t>(
      tree_scratch_bytes(Reduction::kFp32Sum, num_homes, std::ssize(sum))));
  tree_sum(cpu_wire_ops(), Reduction::kFp32Sum, pointers, std::ssize(sum),
           reinterpret_cast<std::byte*>(sum.data()), scratch.data());
  const auto factor =
      static_cast<float>(gradient_factor(kind, Mesh{.dp = num_homes}));
  for (float& value : sum) value *= factor;
  return sum;
}

int64_t shard_elements(const Tensor& tensor, int32_t tp) {
  int64_t elements = 0;
  for (const ExtentCopy& run : logical_runs(tensor, tp, tp - 1))
    elements += run.count;
  return elements;
}

// Cut by rows, by columns, and in interleaved sections.
TEST(Gradients, AreTheSameInAnEnginesMemory) {
  const auto engine = make_cpu_engine();
  for (const GradientKind kind : {GradientKind::kExact, GradientKind::kRandom})
    for (const int32_t tp : {1, 2})
      for (const Tensor& tensor : tiny().tensors) {
        const auto elements = shard_elements(tensor, tp);
        Values there(static_cast<size_t>(elements)), here(there.size());
        const GradientShare share{kind, 1, 3, 5};
        make_gradient(share, tensor, tp, tp - 1, here);
        make_gradient(*engine, share, tensor, tp, tp - 1, there.data());
        EXPECT_EQ(there, here) << tensor.name << " tp=" << tp;
        make_parameter(tensor, tp, tp - 1, here);
        make_parameter(*engine, tensor, tp, tp - 1, there.data());
        EXPECT_EQ(there, here) << tensor.name << " tp=" << tp;
      }
}

TEST(Gradients, ExactOnesHaveOneMeanForEveryNumberOfRanks) {
  for (const Tensor& tensor : tiny().tensors) {
    const Values one = mean(tensor, GradientKind::kExact, 1, 3);
    for (const int32_t homes : {2, 4, 7, 28, 40})
      EXPECT_EQ(mean(tensor, GradientKind::kExact, homes, 3), one) << homes;
  }
}

TEST(Gradients, EverySliceIsASmallInteger) {
  const Tensor& tensor = tiny().tensors[0];
  std::set<float> seen;
  for (int32_t home = 0; home < kGradientSlices; ++home)
    for (const float value :
         whole(tensor, {GradientKind::kExact, home, kGradientSlices, 1}))
      seen.insert(value * 0x1p20F);
  EXPECT_EQ(seen, (std::set<float>{-3, -1, 1, 3}));
}

TEST(Gradients, RandomOnesShowTheOrderOfAdditions) {
  const Tensor& tensor = tiny().tensors[0];
  const GradientKind kind = GradientKind::kRandom;
  const Values tree = mean(tensor, kind, 7, 1);
  Values chain(tree.size(), 0);
  for (int32_t home = 0; home < 7; ++home) {
    const Values piece = whole(tensor, {kind, home, 7, 1});
    for (size_t i = 0; i < chain.size(); ++i) chain[i] += piece[i];
  }
  for (float& value : chain) value *= static_cast<float>(1.0 / 7);
  EXPECT_NE(tree, chain);
}

TEST(Gradients, ShardsArePiecesOfTheWhole) {
  for (const GradientKind kind : {GradientKind::kExact, GradientKind::kRandom})
    for (const Tensor& tensor : tiny().tensors) {
      const GradientShare share{kind, 1, 3, 5};
      const Values all = whole(tensor, share);
      for (int32_t t = 0; t < 2; ++t) {
        const Mesh mesh{.tp = 2};
        Values shard(static_cast<size_t>(shard_elements(mesh, tensor)));
        make_gradient(share, tensor, 2, t, shard);
        for (const ExtentCopy& run : logical_runs(tensor, 2, t))
          for (int64_t i = 0; i < run.count; ++i)
            ASSERT_EQ(shard[static_cast<size_t>(run.from + i)],
                      all[static_cast<size_t>(run.to + i)]);
      }
    }
}

TEST(Gradients, StepsNamesAndHomesDiffer) {
  const Tensor& a = tiny().tensors[2];
  Tensor b = a;
  b.name += "x";
  for (const GradientKind kind :
       {GradientKind::kExact, GradientKind::kRandom}) {
    const Values base = whole(a, {kind, 0, 2, 1});
    EXPECT_NE(whole(a, {kind, 0, 2, 2}), base);
    EXPECT_NE(whole(a, {kind, 1, 2, 1}), base);
    EXPECT_NE(whole(b, {kind, 0, 2, 1}), base);
  }
}

TEST(Gradients, ParametersAreNearlyNormal) {
  Tensor tensor;
  tensor.name = "w";
  tensor.shape = {400, 300};
  Values w(120'000);
  make_parameter(tensor, 1, 0, w);
  const double mean = std::accumulate(w.begin(), w.end(), 0.0) / 120'000;
  double squares = 0;
  for (const float x : w) squares += (x - mean) * (x - mean);
  EXPECT_NEAR(mean, 0, 3e-4);
  EXPECT_NEAR(std::sqrt(squares / 120'000), 0.02, 3e-4);
}

TEST(Gradients, KindsHaveNames) {
  EXPECT_EQ(parse_gradient_kind("exact"), GradientKind::kExact);
  EXPECT_EQ(to_string(parse_gradient_kind("random")), "random");
  EXPECT_THROW(parse_gradient_kind("exakt"), UsageError);
}

}  // namespace
}  // namespace canzona::runtime::gradients_test
