#include "canzona/rules/muon/facts.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::rules {
namespace {

constexpr Coefficients kSimple{3.4445, -4.7750, 2.0315};

std::vector<Coefficients> deepseek() {
  std::vector<Coefficients> steps(8, kSimple);
  steps.insert(steps.end(), 2, {2, -1.5, 0.5});
  return steps;
}

// Successive minimax quintics for [4e-3, 1], each with 2 % of headroom for
// values that rounding has lifted.
std::vector<Coefficients> minimax4() {
  std::vector<Coefficients> steps = {{8.18546606, -23.30618885, 17.08798241},
                                     {3.95634368, -2.91070707, 0.55143543},
                                     {3.34484077, -2.50815334, 0.51227673},
                                     {2.32405773, -1.68982671, 0.42107125}};
  constexpr double kRoom = 1.02;
  for (Coefficients& k : steps) {
    k.a /= kRoom;
    k.b /= kRoom * kRoom * kRoom;
    k.c /= kRoom * kRoom * kRoom * kRoom * kRoom;
  }
  return steps;
}

constexpr std::string_view kNeedsRowScaling =
    "it is designed for rows scaled by the row sums of the Gram matrix; with "
    "a plain norm it reverses the top direction of a matrix of nearly rank one";

std::vector<CoefficientSet> make_sets() {
  return {
      {"simple", {kSimple}, true, 5, 1, "", 2, 3},
      {"quintic",
       {{4.0848, -6.8946, 2.9270},
        {3.9505, -6.3029, 2.6377},
        {3.7418, -5.5913, 2.3037},
        {2.8769, -3.1427, 1.2046},
        {2.8366, -3.0525, 1.2012}},
       true,
       5,
       1,
       "",
       2,
       3},
      {"polar_express",
       {{8.2051, -22.9019, 16.4607},
        {4.0664, -2.8612, 0.5184},
        {3.9096, -2.8234, 0.5250},
        {3.2856, -2.4153, 0.4853},
        {2.2779, -1.6198, 0.3985},
        {1.8726, -1.2307, 0.3585},
        {1.8564, -1.2132, 0.3568},
        {1.8750, -1.2500, 0.3750}},
       true,
       5,
       1,
       ""},
      {"polar-dion",
       {{8.156554524902461, -22.48329292557795, 15.878769915207462},
        {4.042929935166739, -2.808917465908714, 0.5000178451051316},
        {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
        {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
        {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}},
       false,
       5,
       1.02,
       ""},
      {"qwen_express",
       {{8.3865, -24.3696, 17.7251},
        {4.1414, -3.0173, 0.5524},
        {3.9226, -2.8672, 0.5357},
        {3.2540, -2.3922, 0.4827},
        {2.2512, -1.5963, 0.3960},
        {1.8700, -1.2279, 0.3582},
        {1.8564, -1.2132, 0.3568},
        {1.8750, -1.2500, 0.3750}},
       true,
       5,
       1.02,
       ""},
      {"cans",
       {{8.4703, -25.1081, 18.6293},
        {4.1828, -3.1087, 0.5806},
        {3.9619, -2.9541, 0.5630},
        {3.2866, -2.4647, 0.5074},
        {2.2737, -1.6447, 0.4162}},
       true,
       5,
       1.02,
       ""},
      {"aol",
       {{4.0098, -7.0585, 2.4635},
        {3.4585, -5.5479, 2.5959},
        {2.7573, -3.2939, 1.4254},
        {2.7215, -3.0494, 1.3169}},
       true,
       4,
       1,
       kNeedsRowScaling},
      {"aol_fast",
       {{4.6051, -9.6552, 5.6769},
        {4.7505, -6.0861, 2.1790},
        {2.7763, -2.3190, 0.5523},
        {2.4231, -2.2861, 0.8193}},
       false,
       4,
       1,
       kNeedsRowScaling},
      {"deepseekv4", deepseek(), true, 10, 1, "", 2, 3},
      {"cubic5",
       {{3.3656576, -3.3420992, 0},
        {2.5744352, -1.4957376, 0},
        {2.5368962, -1.4312570, 0},
        {2.4418906, -1.2764040, 0},
        {2.2230472, -0.9630650, 0}},
       false,
       5,
       1.02,
       "",
       2,
       3},
      {"minimax4", minimax4(), false, 4, 1, "", 2, 3},
  };
}

}  // namespace

const std::vector<CoefficientSet>& coefficient_sets() {
  static const std::vector<CoefficientSet> sets = make_sets();
  return sets;
}

const CoefficientSet& coefficient_set(std::string_view name) {
  for (const CoefficientSet& set : coefficient_sets())
    if (set.name == name) return set;
  throw InternalError(cat("no coefficient set ", name));
}

std::vector<Coefficients> unrolled(const std::vector<Coefficients>& set,
                                   int64_t steps, Overrun overrun) {
  std::vector<Coefficients> all;
  const auto size = static_cast<int64_t>(set.size());
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t i =
        overrun == Overrun::kCycle ? k % size : std::min(k, size - 1);
    all.push_back(set[static_cast<size_t>(i)]);
  }
  return all;
}

double composed(const std::vector<Coefficients>& steps, double x) {
  for (const Coefficients& k : steps) {
    const double square = x * x;
    x *= k.a + square * (k.b + square * k.c);
  }
  return x;
}

std::string first_fault(const std::vector<Coefficients>& steps) {
  constexpr int kPoints = 20400;
  for (int i = 1; i <= kPoints; ++i) {
    const double x = 1.02 * i / kPoints;
    const double y = composed(steps, x);
    if (y < 0)
      return cat("a singular value of ", x, " times the norm changes its sign");
    if (!(y <= 1.5))
      return cat("a singular value of ", x, " times the norm becomes ", y);
  }
  return "";
}

}  // namespace canzona::rules
