// Bits of Muon with strips: one strip has the bits of the version without
// strips, and every way of computing a matrix gives the same bits.
#include <gmock/gmock.h>

#include <array>
#include <bit>

#include "canzona/rules/rule.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::muon_strips_bits_test {
namespace {

// Numbers in (-2, 2) that are the same on every machine.
std::vector<float> exact_values(int64_t count, uint64_t seed) {
  std::vector<float> values;
  uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    values.push_back(static_cast<float>(static_cast<int64_t>(state >> 40) -
                                        (int64_t{1} << 23)) /
                     static_cast<float>(int64_t{1} << 22));
  }
  return values;
}

struct Fnv {
  uint64_t value = 0xcbf29ce484222325ULL;
  void add(const std::vector<float>& numbers) {
    for (float number : numbers) {
      const auto bits = std::bit_cast<std::array<unsigned char, 4>>(number);
      for (unsigned char byte : bits) value = (value ^ byte) * 0x100000001b3ULL;
    }
  }
};

constexpr const char* kForms[] = {"standard", "symmetric", "gram"};
const Dims kShapes[] = {{96, 300}, {300, 96}, {70, 520}, {1, 600}, {130, 130}};

RuleOptions options_of(const char* precision, const char* form,
                       const char* strips) {
  return {{"device", "cpu"},
          {"precision", precision},
          {"newton_schulz", form},
          {"strips", strips},
          {"unsafe", "on"}};
}

// Three steps, alternately staged and fused, in every form and shape.
uint64_t hash_of_steps(Engine& engine, const char* strips) {
  Fnv hash;
  for (const char* form : kForms)
    for (const char* norm : {"frobenius", "schatten4"})
      for (const Dims& dims : kShapes) {
        RuleOptions options = options_of("bf16", form, strips);
        options["normalization"] = norm;
        const int64_t count = num_elements(dims);
        TestTensor<float> tensor(make_rule("muon", options, DType::kFp32), dims,
                                 exact_values(count, 7));
        tensor.step(engine, exact_values(count, 1), 0.01);
        tensor.step_whole(engine, exact_values(count, 2), 0.01);
        tensor.step(engine, exact_values(count, 3), 0.01);
        hash.add(tensor.weights);
        hash.add(tensor.state("momentum"));
      }
  return hash.value;
}

// The portable kernel rounds the same on every machine; libraries do not. The
// hash was computed with the version without strips.
TEST(MuonStripsBits, OneStripHasTheBitsOfBefore) {
  const auto engine = make_cpu_engine(Bf16Kernel::kPortable);
  EXPECT_EQ(hash_of_steps(*engine, "1"), 5704928784063739434U);
  EXPECT_NE(hash_of_steps(*engine, "2"), 5704928784063739434U);
}

// Staged, fused, and in a stack: the bits are the same with strips too.
TEST(MuonStripsBits, FusedStagedAndBatchedStepsGiveTheSame) {
  const auto engine = make_cpu_engine();
  for (const char* precision : {"bf16", "fp32"})
    for (const char* form : kForms)
      for (const char* strips : {"2", "4", "8"})
        for (const Dims& dims : kShapes) {
          const int64_t count = num_elements(dims);
          const auto grad = exact_values(2 * count, 3);
          const auto start = exact_values(2 * count, 7);
          const auto make = [&](const Dims& shape) {
            return TestTensor<float>(
                make_rule("muon", options_of(precision, form, strips),
                          DType::kFp32),
                shape, {start.begin(), start.begin() + num_elements(shape)});
          };
          TestTensor<float> staged = make(dims), fused = make(dims);
          TestTensor<float> stack = make({2, dims[0], dims[1]});
          const std::vector<float> one(grad.begin(), grad.begin() + count);
          staged.step(*engine, one, 0.01);
          fused.step_whole(*engine, one, 0.01);
          stack.step_whole(*engine, grad, 0.01);
          ASSERT_EQ(staged.weights, fused.weights)
              << precision << " " << form << " " << canzona::to_string(dims);
          stack.weights.resize(static_cast<size_t>(count));
          ASSERT_EQ(staged.weights, stack.weights)
              << precision << " " << form << " " << canzona::to_string(dims);
        }
}

}  // namespace
}  // namespace canzona::rules::muon_strips_bits_test
