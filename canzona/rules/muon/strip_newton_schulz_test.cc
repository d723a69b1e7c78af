// Muon on strips that arrive one by one, against the whole matrix at once.
#include <gmock/gmock.h>

#include <limits>

#include "canzona/rules/muon/test_stress.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/strips.h"
#include "canzona/rules/test_team.h"

namespace canzona::strip_newton_schulz_test {
namespace {

RuleOptions on_cpu(const std::string& form, const std::string& precision,
                   int strips, const std::string& norm = "frobenius") {
  return {{"device", "cpu"},
          {"newton_schulz", form},
          {"precision", precision},
          {"normalization", norm},
          {"strips", std::to_string(strips)},
          {"unsafe", "on"}};
}

// The indices of a strip's elements in the matrix, row by row.
std::vector<size_t> places_of(MatrixShape shape, int strips, int strip) {
  const bool tall = shape.rows > shape.cols;
  const auto borders = strip_borders(std::max(shape.rows, shape.cols), strips);
  std::vector<size_t> places;
  for (int64_t i = 0; i < shape.rows; ++i)
    for (int64_t j = 0; j < shape.cols; ++j) {
      const int64_t along = tall ? i : j;
      if (along >= borders[size_t(strip)] && along < borders[size_t(strip) + 1])
        places.push_back(size_t(i * shape.cols + j));
    }
  return places;
}

template <class Real>
std::vector<Real> numbers(int64_t count, uint64_t seed, double size = 1) {
  Stream s(seed);
  std::vector<Real> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<Real>(s.normal() * size));
  return values;
}

template <class Real>
std::vector<Real> at_once(Engine& engine, const Rule& rule, MatrixShape shape,
                          const std::vector<Real>& in) {
  std::vector<Real> out(in.size(), Real{-7});
  const Dims dims{shape.rows, shape.cols};
  const ConstRun fields[] = {run_of(in.data())};
  rule.transform(engine, {},
                 {.dims = dims, .fields = fields, .out = run_of(out.data())});
  return out;
}

// Each strip is written just before it is summed; of the update, only the strip
// that was multiplied is read.
template <class Real>
std::vector<Real> one_by_one(Engine& engine, StripTransform& transform,
                             MatrixShape shape, int strips,
                             const std::vector<Real>& in, int first = 0) {
  const Arena::Scope scope(engine.arena());
  std::vector<Real> matrix(in.size(), std::numeric_limits<Real>::quiet_NaN());
  std::vector<Real> update = matrix, out = matrix;
  transform.begin(engine.arena());
  for (int i = 0; i < strips; ++i) {
    const int s = (first + i) % strips;
    for (size_t at : places_of(shape, strips, s)) matrix[at] = in[at];
    transform.sum(s, run_of(std::as_const(matrix).data()));
  }
  transform.iterate();
  std::fill(matrix.begin(), matrix.end(), Real{5});
  for (int s = 0; s < strips; ++s) {
    transform.multiply(s, run_of(update.data()));
    for (size_t at : places_of(shape, strips, s)) out[at] = update[at];
  }
  return out;
}

template <class Real>
void expect_same(const std::string& precision, Bf16Kernel kernel) {
  const DType dtype = DTypeOf<Real>::value;
  const auto engine = make_cpu_engine(kernel);
  for (const MatrixShape shape : {MatrixShape{40, 512}, MatrixShape{600, 24},
                                  MatrixShape{65, 777}, MatrixShape{1, 530}})
    for (const char* norm : {"frobenius", "schatten4"})
      for (int strips : {2, 4, 8})
        for (const char* form : {"standard", "symmetric", "gram"}) {
          const auto rule =
              make_rule("muon", on_cpu(form, precision, strips, norm), dtype);
          const auto transform = rule->by_strips(*engine, shape);
          ASSERT_NE(transform, nullptr);
          EXPECT_TRUE(rule->facts().strips(shape).one_by_one);
          for (int seed : {5, 6}) {  // a transform can be reused
            const auto in = numbers<Real>(shape.rows * shape.cols,
                                          static_cast<uint64_t>(seed));
            expect_same_bits(
                one_by_one(*engine, *transform, shape, strips, in, seed),
                at_once(*engine, *rule, shape, in),
                precision + " " + form + " " + norm + " " + to_string(shape) +
                    " strips " + std::to_string(strips));
          }
        }
}

TEST(MuonStripByStrip, HasTheBitsOfTheWholeInBf16) {
  for (Bf16Kernel kernel : usable_bf16_kernels())
    expect_same<float>("bf16", kernel);
}

TEST(MuonStripByStrip, HasTheBitsOfTheWholeInFp32) {
  expect_same<float>("fp32", Bf16Kernel::kPortable);
}

TEST(MuonStripByStrip, HasTheBitsOfTheWholeInFp64) {
  expect_same<double>("fp64", Bf16Kernel::kPortable);
}

// Norms so far from 1 that strips are loaded and summed again, zeros, and
// values that are not finite.
TEST(MuonStripByStrip, TakesNumbersOfEverySize) {
  const auto engine = make_cpu_engine();
  const MatrixShape shape{20, 512};
  const auto check = [&](const auto& in, const std::string& precision) {
    using Real = typename std::decay_t<decltype(in)>::value_type;
    const auto rule =
        make_rule("muon", on_cpu("gram", precision, 8), DTypeOf<Real>::value);
    const auto transform = rule->by_strips(*engine, shape);
    expect_same_bits(one_by_one(*engine, *transform, shape, 8, in),
                     at_once(*engine, *rule, shape, in), precision);
  };
  for (const char* precision : {"fp32", "bf16"}) {
    for (double size : {0.0, 1e-36, 1e-3, 1.0, 1e30})
      check(numbers<float>(20 * 512, 3, size), precision);
    auto broken = numbers<float>(20 * 512, 3);
    broken[5 * 512 + 200] = std::numeric_limits<float>::infinity();
    check(broken, precision);
  }
  for (double size : {0.0, 1e-290, 1e-160, 1.0, 1e160, 1e290})
    check(numbers<double>(20 * 512, 3, size), "fp64");
}

TEST(MuonStripByStrip, NoneWithOneStripAndNoneOfARuleThatSaysNothing) {
  const auto engine = make_cpu_engine();
  const auto muon = make_rule("muon", on_cpu("gram", "bf16", 1), DType::kFp32);
  EXPECT_EQ(muon->by_strips(*engine, {40, 512}), nullptr);
  EXPECT_FALSE(muon->facts().strips({40, 512}).one_by_one);
  const auto soap = make_rule("soap", {}, DType::kFp32);
  EXPECT_EQ(soap->by_strips(*engine, {40, 512}), nullptr);
}

}  // namespace
}  // namespace canzona::strip_newton_schulz_test
