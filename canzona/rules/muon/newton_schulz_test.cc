#include "canzona/rules/muon/newton_schulz.h"

#include <gmock/gmock.h>

#include <bit>

#include "canzona/base/float16.h"
#include "canzona/base/text.h"
#include "canzona/rules/muon/test_stress.h"

namespace canzona::rules::muon_newton_schulz_test {
namespace {

constexpr const char* kForms[] = {"standard", "symmetric", "gram"};

// Makes bf16 apply to small matrices too.
RuleOptions on_cpu(RuleOptions options) {
  options.try_emplace("device", "cpu");
  const auto precision = options.find("precision");
  if (precision != options.end() && precision->second == "bf16")
    options.try_emplace("unsafe", "on");
  return options;
}

template <class Real>
PlainMatrix orthogonal(Engine& engine, const RuleOptions& options,
                       const PlainMatrix& a) {
  const MuonFacts facts(on_cpu(options));
  std::vector<Real> in(a.values.begin(), a.values.end());
  std::vector<Real> out(in.size());
  orthogonalize(engine, facts,
                matrices(std::as_const(in).data(), a.rows, a.cols),
                matrices(out.data(), a.rows, a.cols));
  PlainMatrix result(a.rows, a.cols);
  result.values.assign(out.begin(), out.end());
  return result;
}

PlainMatrix orthogonal64(const RuleOptions& options, const PlainMatrix& a) {
  const auto engine = make_cpu_engine();
  RuleOptions all = options;
  all["precision"] = "fp64";
  return orthogonal<double>(*engine, all, a);
}

PlainMatrix plain(int64_t rows, int64_t cols, std::vector<double> values) {
  PlainMatrix a(rows, cols);
  a.values = std::move(values);
  return a;
}

double worst_entry(const PlainMatrix& a, const PlainMatrix& b) {
  double worst = 0;
  for (size_t i = 0; i < a.values.size(); ++i)
    worst = std::max(worst, std::fabs(a.values[i] - b.values[i]));
  return worst;
}

// 8·G1 = [-1 5 -2; 3 0 -3; -4 -3 -2]
const PlainMatrix kWide = plain(2, 3, {-0.125, 0.625, -0.25, 0.375, 0, -0.375});
const PlainMatrix kSquare =
    plain(3, 3, {-0.125, 0.625, -0.25, 0.375, 0, -0.375, -0.5, -0.375, -0.25});

struct Known {
  const char* set;
  std::vector<double> values;
};
const Known kKnownWide[] = {
    {"simple",
     {-1.817167014303e-01, 1.002244950912e+00, -4.196302691172e-01,
      5.201737192878e-01, 3.122048125372e-02, -5.389060080400e-01}},
    {"quintic",
     {-2.274773895987e-01, 9.236522986299e-01, -3.267139895793e-01,
      7.394280752930e-01, -7.124488312118e-02, -6.966811454203e-01}},
    {"polar_express",
     {-2.165379289901e-01, 1.018752449083e+00, -3.947135404596e-01,
      6.666637058684e-01, -2.131239862255e-02, -6.538762666948e-01}},
    {"polar-dion",
     {-2.100128133995e-01, 8.097627834518e-01, -2.758448566716e-01,
      6.941187824773e-01, -8.010042784856e-02, -6.460585257682e-01}},
};

TEST(NewtonSchulz, GivesKnownNumbersInEveryForm) {
  for (const char* form : kForms) {
    for (const Known& known : kKnownWide) {
      const RuleOptions options{{"coefficients", known.set},
                                {"newton_schulz", form},
                                {"epsilon", "0"}};
      const PlainMatrix o = orthogonal64(options, kWide);
      EXPECT_LT(worst_entry(o, plain(2, 3, known.values)), 1e-11)
          << form << " " << known.set;
      const PlainMatrix t = orthogonal64(options, transposed(kWide));
      EXPECT_LT(worst_entry(transposed(t), plain(2, 3, known.values)), 1e-11)
          << form << " " << known.set << ", tall";
    }
    const PlainMatrix square =
        orthogonal64({{"newton_schulz", form}, {"epsilon", "0"}}, kSquare);
    EXPECT_LT(
        worst_entry(square, plain(3, 3,
                                  {-6.784362023407e-02, 8.406213477168e-01,
                                   -3.082173458825e-01, 6.032501360036e-01,
                                   -9.541183578095e-02, -9.007152459269e-01,
                                   -5.768223087230e-01, -6.295264200145e-01,
                                   -4.683774604503e-01})),
        1e-11)
        << form;
  }
}

// A small matrix is normalised before it is rounded, as in the references, so
// that the direct forms give their bits: the norm in fp32, one rounding per
// product.
TEST(NewtonSchulz, InBf16GivesTheReferencesBits) {
  const Known known[] = {{"simple",
                          {-0.185546875, 1.0078125, -0.419921875, 0.546875,
                           0.0269775390625, -0.5625}},
                         {"quintic",
                          {-0.2265625, 0.921875, -0.326171875, 0.73828125,
                           -0.0751953125, -0.6953125}}};
  for (Bf16Kernel kernel : usable_bf16_kernels()) {
    const auto engine = make_cpu_engine(kernel);
    for (const Known& reference : known)
      for (const char* form : {"standard", "symmetric"}) {
        const PlainMatrix o =
            orthogonal<float>(*engine,
                              {{"coefficients", reference.set},
                               {"newton_schulz", form},
                               {"precision", "bf16"}},
                              kWide);
        for (size_t i = 0; i < o.values.size(); ++i) {
          const auto exact = static_cast<float>(o.values[i]);
          const uint16_t rounded = bf16_from_float(exact);
          const auto bits = static_cast<uint32_t>(rounded) << 16;
          EXPECT_EQ(std::bit_cast<float>(bits), reference.values[i])
              << to_string(kernel) << " " << reference.set << " " << form;
        }
      }
  }
}

// U·φ(Σ)·Vᵀ with the scalar map, for every set and form.
TEST(NewtonSchulz, MapsEverySingularValue) {
  Stream s(5);
  const std::vector<double> spectrum = {1, 0.7, 0.3, 0.1, 0.05, 0.01};
  const PlainMatrix u = orthonormal(6, 6, s);
  const PlainMatrix v = orthonormal(10, 6, s);
  for (const CoefficientSet& set : coefficient_sets()) {
    for (const char* form : kForms) {
      const RuleOptions options{{"coefficients", std::string(set.name)},
                                {"newton_schulz", form},
                                {"epsilon", "0"},
                                {"unsafe", "on"}};
      const MuonFacts facts(on_cpu(options));
      PlainMatrix g = u, expected = u;
      double norm = 0;
      for (double x : spectrum) norm += x * x;
      norm = std::sqrt(norm) * set.norm_factor;
      for (int64_t i = 0; i < 6; ++i)
        for (int64_t j = 0; j < 6; ++j) {
          const double x = spectrum[static_cast<size_t>(j)];
          g(i, j) *= x;
          expected(i, j) *= composed(facts.coefficients(), x / norm);
        }
      EXPECT_LT(distance(orthogonal64(options, g * transposed(v)),
                         expected * transposed(v)),
                set.name == "deepseekv4" ? 1e-8 : 1e-10)
          << set.name << " " << form;
    }
  }
}

TEST(NewtonSchulz, D6OfAVectorIsAMultipleOfIt) {
  const double phi = 0.696436409470;
  for (const auto& [m, n] : {std::pair{1, 7}, {7, 1}, {1, 1}}) {
    Stream s(3);
    const PlainMatrix u = gaussian(m, n, s);
    const PlainMatrix o = orthogonal64({{"epsilon", "0"}}, u);
    for (size_t i = 0; i < u.values.size(); ++i)
      EXPECT_NEAR(o.values[i], phi * u.values[i] / frobenius(u), 1e-11);
  }
}

TEST(NewtonSchulz, TurnsWithItsInput) {
  Stream s(8);
  const PlainMatrix g = gaussian(5, 9, s);
  const PlainMatrix left = orthonormal(5, 5, s), right = orthonormal(9, 9, s);
  for (const char* form : kForms) {
    const RuleOptions options{{"newton_schulz", form}, {"epsilon", "0"}};
    EXPECT_LT(distance(orthogonal64(options, left * g * right),
                       left * orthogonal64(options, g) * right),
              1e-11)
        << form;
  }
}

TEST(NewtonSchulz, DoesNotSeeTheScaleOfItsInput) {
  Stream s(9);
  const auto engine = make_cpu_engine();
  const PlainMatrix g = gaussian(17, 33, s);
  for (const char* precision : {"fp32", "bf16"}) {
    const RuleOptions options{{"precision", precision}, {"epsilon", "0"}};
    const PlainMatrix o = orthogonal<float>(*engine, options, g);
    for (int exponent : {-100, -60, 60, 100}) {
      PlainMatrix scaled = g;
      for (double& x : scaled.values) x = std::ldexp(x, exponent);
      const PlainMatrix other = orthogonal<float>(*engine, options, scaled);
      EXPECT_LT(distance(o, other), 1e-4 * frobenius(o))
          << precision << " 2^" << exponent;
    }
  }
  for (int exponent : {-900, 900}) {
    PlainMatrix scaled = g;
    for (double& x : scaled.values) x = std::ldexp(x, exponent);
    EXPECT_LT(distance(orthogonal64({{"epsilon", "0"}}, g),
                       orthogonal64({{"epsilon", "0"}}, scaled)),
              1e-11);
  }
}

TEST(NewtonSchulz, EpsilonHoldsBackTinyMatrices) {
  PlainMatrix g(1, 1);
  g(0, 0) = 1e-8;
  const MuonFacts facts({});
  EXPECT_NEAR(orthogonal64({{"epsilon", "1e-7"}}, g)(0, 0),
              composed(facts.coefficients(), 0.1), 1e-11);
  EXPECT_NEAR(
      orthogonal64({{"epsilon", "1e-7"}, {"epsilon_mode", "add"}}, g)(0, 0),
      composed(facts.coefficients(), 1 / 11.0), 1e-11);
}

TEST(NewtonSchulz, D6OfZeroIsZero) {
  const auto engine = make_cpu_engine();
  for (const char* form : kForms)
    for (const char* precision : {"fp32", "bf16"})
      for (const char* epsilon : {"0", "1e-7"}) {
        const PlainMatrix o = orthogonal<float>(*engine,
                                                {{"newton_schulz", form},
                                                 {"precision", precision},
                                                 {"epsilon", epsilon}},
                                                PlainMatrix(3, 40));
        EXPECT_EQ(frobenius(o), 0) << form << " " << precision;
      }
}

TEST(NewtonSchulz, D6TakesEmptyMatrices) {
  const auto engine = make_cpu_engine();
  for (const auto& [m, n] : {std::pair{0, 5}, {5, 0}, {0, 0}})
    EXPECT_TRUE(
        orthogonal<float>(*engine, {}, PlainMatrix(m, n)).values.empty());
}

// Down to the smallest representable numbers.
TEST(NewtonSchulz, PowersOfTwoChangeNoBit) {
  const auto engine = make_cpu_engine();
  for (const char* precision : {"fp32", "bf16"})
    for (const auto& [m, n] : {std::pair{4, 6}, {70, 80}}) {
      Stream s(2);
      PlainMatrix g(m, n);
      for (double& x : g.values) x = std::round(4 * s.normal());
      const RuleOptions options{{"precision", precision}, {"epsilon", "0"}};
      const PlainMatrix expected = orthogonal<float>(*engine, options, g);
      for (const int exponent : {-149, -148, -127, -60, 60, 120}) {
        PlainMatrix shifted = g;
        for (double& x : shifted.values) x = std::ldexp(x, exponent);
        const PlainMatrix o = orthogonal<float>(*engine, options, shifted);
        // bf16 cannot represent such numbers, but must handle them.
        if (precision == std::string("bf16") && exponent < -127)
          EXPECT_LT(frobenius(o), 10 * m) << exponent;
        else
          EXPECT_EQ(o.values, expected.values) << precision << " " << exponent;
      }
    }
}

TEST(NewtonSchulz, HandsOnWhatIsNotANumber) {
  const auto engine = make_cpu_engine();
  for (const char* precision : {"fp32", "bf16"})
    for (const char* form : kForms)
      for (const double bad :
           {double{NAN}, double{INFINITY}, -double{INFINITY}})
        for (const auto& [m, n] : {std::pair{4, 6}, {6, 4}, {70, 80}, {1, 5}}) {
          Stream s(1);
          PlainMatrix g(m, n);
          for (double& x : g.values) x = s.normal();
          g(0, 2) = bad;
          const PlainMatrix o = orthogonal<float>(
              *engine, {{"precision", precision}, {"newton_schulz", form}}, g);
          for (const double x : o.values)
            ASSERT_TRUE(std::isnan(x)) << precision << " " << form << " " << bad
                                       << " " << m << "x" << n;
        }
}

// Rounding errors, relative to the same schedule in fp64.
TEST(NewtonSchulz, RoundsAsLittleAsItsPrecisionAllows) {
  Stream s(1);
  const auto engine = make_cpu_engine();
  for (const auto& [m, n] : {std::pair{33, 100}, {100, 33}, {64, 64}}) {
    const PlainMatrix g = gaussian(m, n, s);
    for (const char* set : {"simple", "quintic", "polar_express"})
      for (const char* form : kForms) {
        RuleOptions options{{"coefficients", set}, {"newton_schulz", form}};
        const PlainMatrix exact = orthogonal64(options, g);
        // A Gram matrix squares the condition number.
        const double more = std::string(form) == "gram" ? 2 : 1;
        options["precision"] = "fp32";
        EXPECT_LT(distance(orthogonal<float>(*engine, options, g), exact),
                  more * 2e-5 * frobenius(exact))
            << set << " " << form << " " << m << "x" << n;
        options["precision"] = "bf16";
        EXPECT_LT(distance(orthogonal<float>(*engine, options, g), exact),
                  more * 3e-2 * frobenius(exact))
            << set << " " << form << " " << m << "x" << n;
      }
  }
}

TEST(NewtonSchulz, SchattenNormLiftsFlatSpectra) {
  Stream s(4);
  const PlainMatrix g = gaussian(24, 40, s);
  PlainMatrix gram = g * transposed(g);
  const double norm = std::sqrt(frobenius(gram));
  PlainMatrix normalized = g;
  for (double& x : normalized.values) x /= norm;
  // A plain step-by-step oracle: X <- aX + bXX'X + c(XX')²X.
  PlainMatrix x = normalized;
  for (const Coefficients& k : coefficient_set("minimax4").steps) {
    const PlainMatrix r = x * transposed(x);
    const PlainMatrix rx = r * x, rrx = r * rx;
    for (size_t i = 0; i < x.values.size(); ++i)
      x.values[i] =
          k.a * x.values[i] + k.b * rx.values[i] + k.c * rrx.values[i];
  }
  for (const char* form : kForms)
    EXPECT_LT(distance(orthogonal64({{"coefficients", "minimax4"},
                                     {"normalization", "schatten4"},
                                     {"newton_schulz", form}},
                                    g),
                       x),
              1e-10)
        << form;
}

// Each matrix of a batch has the bits that it has alone.
TEST(NewtonSchulz, DoesNotSeeItsBatch) {
  Stream s(6);
  const auto engine = make_cpu_engine();
  for (const char* precision : {"fp32", "bf16"})
    for (const char* form : {"symmetric", "gram"}) {
      const MuonFacts facts(
          on_cpu({{"precision", precision}, {"newton_schulz", form}}));
      const int64_t m = 20, n = 45, count = 3;
      std::vector<float> in(m * n * count), together(in.size()),
          alone(in.size());
      for (float& x : in) x = static_cast<float>(s.normal());
      const ConstMatrices all = matrices(std::as_const(in).data(), m, n, count);
      orthogonalize(*engine, facts, all,
                    matrices(together.data(), m, n, count));
      for (int64_t i : {2, 0, 1})
        orthogonalize(*engine, facts, all.at(i),
                      matrices(alone.data(), m, n, count).at(i));
      EXPECT_EQ(together, alone) << precision << " " << form;
    }
}

// The worst singular value of the result over the stress set.
double worst_of(Engine& engine, const RuleOptions& options, int64_t m,
                int64_t n, uint64_t seed, std::string* where) {
  double worst = 0;
  for (const StressCase& hard : stress_cases(m, n, seed)) {
    const PlainMatrix o = orthogonal<float>(engine, options, hard.matrix);
    const double top = largest_singular_value(o);
    if (!(top <= worst)) {
      worst = top;
      *where = hard.name;
    }
    if (!std::isfinite(top)) return top;
  }
  return worst;
}

TEST(NewtonSchulz, D6StandsHardMatricesInEveryFormAndPrecision) {
  const auto engine = make_cpu_engine();
  for (const CoefficientSet& set : coefficient_sets()) {
    if (!set.hazard.empty()) continue;
    for (const char* precision : {"fp32", "bf16"}) {
      if (set.name == "cans" && std::string(precision) == "bf16") continue;
      for (const char* form : kForms) {
        const RuleOptions options{{"coefficients", std::string(set.name)},
                                  {"precision", precision},
                                  {"newton_schulz", form}};
        std::string where;
        EXPECT_LE(worst_of(*engine, options, 64, 192, 1, &where), 1.35)
            << set.name << " " << precision << " " << form << ": " << where;
      }
    }
  }
}

TEST(NewtonSchulz, D6StandsHardMatricesOnEveryKernel) {
  for (Bf16Kernel kernel : usable_bf16_kernels()) {
    const auto engine = make_cpu_engine(kernel);
    for (const char* set : {"simple", "polar_express"})
      for (const char* form : kForms) {
        std::string where;
        EXPECT_LE(worst_of(*engine,
                           {{"precision", "bf16"},
                            {"coefficients", set},
                            {"newton_schulz", form}},
                           36, 100, 2, &where),
                  1.35)
            << to_string(kernel) << " " << set << " " << form << ": " << where;
      }
  }
}

// If rounded to bf16 before the first step, they would be off by 0.2 to 1.8 in
// every form, with every restart.
TEST(NewtonSchulz, SmallMatricesInBf16StayCloseToFp64) {
  const auto engine = make_cpu_engine();
  for (const char* set : {"simple", "polar-dion"})
    for (const char* form : {"standard", "symmetric", "gram", "auto"})
      for (const auto& [m, n] : {std::pair<int64_t, int64_t>{4, 6}, {31, 40}})
        for (const StressCase& hard : small_stress_cases(m, n, 2)) {
          const RuleOptions options{{"coefficients", set},
                                    {"newton_schulz", form},
                                    {"precision", "bf16"},
                                    {"epsilon", "0"},
                                    {"unsafe", "off"}};
          const std::vector<Coefficients> steps =
              MuonFacts(on_cpu(options)).coefficients();
          const PlainMatrix exact = plain_iteration(
              hard.matrix, steps, coefficient_set(set).norm_factor);
          const PlainMatrix tall = transposed(
              orthogonal<float>(*engine, options, transposed(hard.matrix)));
          const PlainMatrix wide =
              orthogonal<float>(*engine, options, hard.matrix);
          for (const PlainMatrix& o : {tall, wide})
            EXPECT_LE(distance(o, exact) / frobenius(exact),
                      stress_tolerance(steps, "fp32"))
                << set << " " << form << " " << m << "x" << n << ": "
                << hard.name;
        }
}

TEST(NewtonSchulz, D6SchattenNormStandsHardMatrices) {
  const auto engine = make_cpu_engine();
  for (const char* precision : {"fp32", "bf16"})
    for (const char* form : kForms) {
      std::string where;
      EXPECT_LE(worst_of(*engine,
                         {{"precision", precision},
                          {"coefficients", "minimax4"},
                          {"normalization", "schatten4"},
                          {"newton_schulz", form}},
                         64, 192, 3, &where),
                1.35)
          << precision << " " << form << ": " << where;
    }
}

}  // namespace
}  // namespace canzona::rules::muon_newton_schulz_test
