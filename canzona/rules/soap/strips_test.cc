// SOAP with one factor in strips: the statistics are the sum by the tree,
// written out here; one strip has the bits of no strips; the members of a team
// have the bits of a single rank, update and states.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/test_remote_engine.h"
#include "canzona/rules/soap/facts.h"
#include "canzona/rules/test_matrices.h"
#include "canzona/rules/test_steps.h"
#include "canzona/rules/test_team.h"
#include "canzona/rules/test_team_steps.h"

namespace canzona::rules::soap_strips_test {
namespace {

using namespace team_steps;

RuleOptions one_factor(int strips, const RuleOptions& more = {}) {
  RuleOptions options = {{"device", "cpu"},
                         {"precondition_frequency", "3"},
                         {"max_preconditioner_dim", "100"},
                         {"strips", std::to_string(strips)}};
  for (const auto& [name, value] : more) options[name] = value;
  return options;
}

Values transposed_values(const Values& from, int64_t rows, int64_t cols) {
  Values to;
  for (int64_t j = 0; j < cols; ++j)
    for (int64_t i = 0; i < rows; ++i)
      to.push_back(from[static_cast<size_t>(i * cols + j)]);
  return to;
}

// ---- statistics, against plain loops ----

// Sums within a strip are exact: small integers, times a power of two for each
// strip, or three of them. Sums over strips are rounded.
Values exact_within_strips(int64_t rows, int64_t cols, int strips) {
  constexpr float kScales[] = {1, 0x1p-12F, 0x1p-11F, 0x3p-12F,
                               1, 0x1p-13F, 3,        0x1p-12F};
  Stream stream(3);
  Values values;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      int s = 0;  // borders of 520 columns are multiples of 64
      while (j >= std::lround(520.0 * (s + 1) / strips / 64) * 64 &&
             s + 1 < strips)
        ++s;
      values.push_back(kScales[s] *
                       static_cast<float>(std::lround(3 * stream.uniform())));
    }
  return values;
}

float gram_of_columns(const Values& g, int64_t cols, int64_t i, int64_t k,
                      int64_t begin, int64_t end) {
  float sum = 0;
  for (int64_t j = begin; j < end; ++j)
    sum += g[static_cast<size_t>(i * cols + j)] *
           g[static_cast<size_t>(k * cols + j)];
  return sum;
}

// Neighbours first, or, to see that it matters, one after another.
Values plain_statistics(const Values& g, int64_t rows, int64_t cols, int strips,
                        bool by_tree) {
  Values out;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < rows; ++k) {
      Values terms;
      for (int s = 0; s < strips; ++s) {
        const auto border = [&](int of) {
          return of == strips ? cols
                              : std::lround(520.0 * of / strips / 64) * 64;
        };
        terms.push_back(
            gram_of_columns(g, cols, i, k, border(s), border(s + 1)));
      }
      while (by_tree && terms.size() > 1) {
        Values next;
        for (size_t t = 0; t < terms.size(); t += 2)
          next.push_back(terms[t] + terms[t + 1]);
        terms = next;
      }
      float sum = 0;
      for (const float term : terms) sum += term;
      out.push_back(sum);
    }
  return out;
}

TEST(SoapStrips, AddStatisticsByTheTree) {
  const auto engine = make_cpu_engine();
  constexpr int64_t kRows = 6, kCols = 520;
  for (const int strips : {2, 4, 8}) {
    const Values g = exact_within_strips(kRows, kCols, strips);
    const Values want = plain_statistics(g, kRows, kCols, strips, true);
    if (strips == 8) {
      EXPECT_NE(want, plain_statistics(g, kRows, kCols, strips, false));
    }
    const RuleOptions options = one_factor(strips, {{"shampoo_beta", "0"}});
    TestTensor<float> wide(make_rule("soap", options, DType::kFp32),
                           {kRows, kCols}, Values(g.size()));
    wide.step(*engine, g, kRate);
    EXPECT_EQ(wide.state("L"), want) << strips;
    TestTensor<float> tall(make_rule("soap", options, DType::kFp32),
                           {kCols, kRows}, Values(g.size()));
    tall.step(*engine, transposed_values(g, kRows, kCols), kRate);
    EXPECT_EQ(tall.state("R"), want) << strips;
  }
}

// ---- one strip, and shapes without strips ----

Values after_steps(const RuleOptions& options, const Dims& dims) {
  const auto engine = make_cpu_engine();
  const int64_t count = num_elements(dims);
  TestTensor<float> tensor(make_rule("soap", options, DType::kFp32), dims,
                           random_values(count, 1));
  for (uint64_t t = 2; t < 9; ++t)
    tensor.step(*engine, random_values(count, t), kRate);
  return tensor.weights;
}

TEST(SoapStrips, DoNotMatterWhereThereIsOne) {
  for (const Dims& dims :
       {Dims{12, 120}, Dims{120, 12}, Dims{12, 16}, Dims{130, 120}})
    EXPECT_EQ(after_steps(one_factor(8), dims),
              after_steps(one_factor(1), dims))
        << to_string(dims);
  const Dims wide{12, 130};
  EXPECT_NE(after_steps(one_factor(8), wide), after_steps(one_factor(1), wide));
}

// ---- teams ----

void expect_strips_as_one(const Variant& variant, MatrixShape shape, int strips,
                          int members, int phase,
                          const MakeEngine& make_engine) {
  SCOPED_TRACE(cat(variant.name, " ", strips, " strips"));
  const RuleOptions options = one_factor(strips, variant.options);
  ASSERT_EQ(make_rule_facts("soap", options)->strips(shape).strips, strips);
  expect_team_as_one(options, shape, members, phase, make_engine);
}

TEST(SoapStrips, OfATeamHaveTheBitsOfOneRank) {
  for (const Variant& variant : variants())
    for (const MatrixShape shape : {MatrixShape{12, 150}, {150, 12}})
      expect_strips_as_one(variant, shape, 2, 2, 0,
                           [] { return make_cpu_engine(); });
}

TEST(SoapStrips, OfTeamsOfAllSizesHaveTheBitsOfOneRank) {
  const Variant variant = variants()[0];
  for (const MatrixShape shape :
       {MatrixShape{33, 600}, {531, 17}, {1, 777}, {90, 512}})
    for (const int strips : {2, 4, 8})
      for (int members = 2; members <= strips; members *= 2)
        expect_strips_as_one(variant, shape, strips, members, 0,
                             [] { return make_cpu_engine(); });
}

TEST(SoapStrips, OfATeamFollowThePhase) {
  for (const int phase : {0, 1, 2})
    expect_strips_as_one(variants()[7], {12, 150}, 2, 2, phase,
                         [] { return make_cpu_engine(); });
}

// Only the engine can access the memory.
TEST(SoapStrips, OfATeamOnADeviceHaveTheBitsOfOneRank) {
  for (const MatrixShape shape : {MatrixShape{12, 270}, {270, 12}})
    expect_strips_as_one(variants()[0], shape, 4, 2, 0,
                         [] { return std::make_unique<RemoteEngine>(1); });
}

// A basis that cannot be found stays, with everyone.
class RefusedOnce final : public DecompositionHook {
 public:
  bool basis(const FactorId&, Matrices, Matrices) override {
    return ++asked_ > 3;
  }

 private:
  int asked_ = 0;
};

TEST(SoapStrips, KeepABasisWhoseSuccessorFails) {
  const auto engine = make_cpu_engine();
  RefusedOnce hook;
  const Dims dims{12, 150};
  TestTensor<float> tensor(make_rule("soap", one_factor(2), DType::kFp32), dims,
                           random_values(12 * 150, 1), &hook);
  tensor.step(*engine, random_values(12 * 150, 2), kRate);
  EXPECT_EQ(tensor.state("refresh_failures"), Values{1});
  Values identity(12 * 12, 0);
  for (size_t i = 0; i < 12; ++i) identity[13 * i] = 1;
  EXPECT_EQ(tensor.state("Q_L"), identity);
  for (uint64_t t = 3; t < 10; ++t)
    tensor.step(*engine, random_values(12 * 150, t), kRate);
  EXPECT_EQ(tensor.state("refresh_failures"), Values{0});
  EXPECT_NE(tensor.state("Q_L"), identity);
}

}  // namespace
}  // namespace canzona::rules::soap_strips_test
