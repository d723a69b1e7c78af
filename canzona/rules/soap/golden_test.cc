// Small cases whose results the reference implementations computed in fp64.
#include <gmock/gmock.h>

#include "canzona/rules/test_steps.h"

namespace canzona::rules::soap_golden_test {
namespace {

using Values = std::vector<double>;

struct Case {
  RuleOptions options;
  double rate;
};

// Weights after each step, from step 1 on.
std::vector<Values> run(const Case& settings, int steps) {
  const auto engine = make_cpu_engine();
  TestTensor<double> tensor(make_rule("soap", settings.options, DType::kFp64),
                            {3, 3}, known_weights(3, 3));
  std::vector<Values> weights;
  for (int t = 1; t <= steps; ++t) {
    tensor.step(*engine, known_gradient(3, 3, t), settings.rate);
    weights.push_back(tensor.weights);
  }
  return weights;
}

void expect_close(const Values& got, const Values& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-11) << "element " << i;
}

Case original(const char* frequency) {
  return {{{"preset", "original"}, {"precondition_frequency", frequency}},
          0x1p-8};
}

TEST(SoapGolden, OriginalOnlyFindsABasisInTheFirstStep) {
  for (const char* preset : {"original", "canzona"})
    EXPECT_EQ(run({{{"preset", preset}}, 0x1p-8}, 1).front(),
              known_weights(3, 3));
}

TEST(SoapGolden, OriginalWithARefreshInEveryStep) {
  const auto weights = run(original("1"), 4);
  expect_close(weights[1],
               {-7.547702246255e-01, 5.019428098191e-01, -1.853318367916e-03,
                3.916415037763e-03, -5.042619560236e-01, 7.462311825670e-01,
                7.473904267106e-01, 2.445461754603e-01, -2.451893684590e-01});
  expect_close(weights[2],
               {-7.545343419898e-01, 5.016561196052e-01, -5.045945302611e-04,
                5.089050624211e-03, -5.066903349785e-01, 7.465865287707e-01,
                7.437627269604e-01, 2.407505723890e-01, -2.434022051080e-01});
  expect_close(weights[3],
               {-7.543927020825e-01, 5.042030584374e-01, 2.528051269198e-04,
                6.613132250503e-03, -5.098283999093e-01, 7.460190902980e-01,
                7.427159906035e-01, 2.386119059867e-01, -2.416795883590e-01});
}

TEST(SoapGolden, OriginalWithARefreshInEverySecondStep) {
  const auto weights = run(original("2"), 4);
  expect_close(weights[2],
               {-7.551209452137e-01, 5.016648863222e-01, -2.863864364947e-04,
                5.495620559893e-03, -5.062964599942e-01, 7.467266097947e-01,
                7.442637111305e-01, 2.401151061593e-01, -2.433802696706e-01});
  expect_close(weights[3],
               {-7.551968330507e-01, 5.041855300360e-01, 2.800345683077e-04,
                7.830172498272e-03, -5.098579545280e-01, 7.460702652665e-01,
                7.432216901850e-01, 2.377492809024e-01, -2.420298551511e-01});
}

Case nvidia(const char* preset) {
  return {{{"preset", preset}, {"epsilon", "0.0009765625"}}, 0x1p-8};
}

TEST(SoapGolden, Nvidia) {
  const auto weights = run(nvidia("nvidia"), 3);
  expect_close(weights[0],
               {-7.488037799993e-01, 4.965831259037e-01, 1.520084657596e-03,
                -2.459365215672e-03, -4.994901170110e-01, 7.529560073781e-01,
                7.527636905711e-01, 2.518434205682e-01, -2.479958459754e-01});
  expect_close(weights[1],
               {-7.601743314875e-01, 4.735714879861e-01, 1.279334073092e-02,
                4.114967770796e-03, -4.899912011795e-01, 7.451483446672e-01,
                7.523795829949e-01, 2.410663717083e-01, -2.378205658992e-01});
  expect_close(weights[2],
               {-7.589541784792e-01, 4.704224646129e-01, 1.630073864789e-02,
                4.678625343719e-03, -4.917309432686e-01, 7.453435867688e-01,
                7.502788988873e-01, 2.392119285606e-01, -2.354423266062e-01});
}

TEST(SoapGolden, NvidiaWithKlFactors) {
  const auto weights = run(nvidia("nvidia-kl"), 3);
  expect_close(weights[0], run(nvidia("nvidia"), 1).front());
  expect_close(weights[1],
               {-7.516341342048e-01, 4.956164177996e-01, 1.179858474179e-03,
                -1.373374398265e-03, -5.022210125732e-01, 7.525999600851e-01,
                7.526901310219e-01, 2.493007040567e-01, -2.429964794717e-01});
  expect_close(weights[2],
               {-7.517823544103e-01, 4.936209644795e-01, 3.145617457446e-03,
                -1.092445103766e-03, -5.039428526257e-01, 7.541934938409e-01,
                7.513011092532e-01, 2.468434497497e-01, -2.409740198816e-01});
}

Case meta(const char* refresh) {
  return {{{"preset", "meta"},
           {"refresh", refresh},
           {"beta1", "0.875"},
           {"beta2", "0.9375"},
           {"epsilon", "0.0009765625"},
           {"eigen_reg", "0.0009765625"}},
          0x1p-7};
}

TEST(SoapGolden, MetaByEigh) {
  const auto weights = run(meta("eigh"), 2);
  expect_close(weights[0],
               {-7.476661537486e-01, 4.932053143073e-01, 3.040169315193e-03,
                -4.918730431344e-03, -4.990192965220e-01, 7.559706085063e-01,
                7.555859748922e-01, 2.537063723865e-01, -2.460112232008e-01});
  expect_close(weights[1],
               {-7.044138741161e-01, 4.513684177013e-01, -8.576689575468e-03,
                1.418732458849e-02, -5.391048298983e-01, 7.387291736419e-01,
                7.767269289224e-01, 2.476483051320e-01, -2.275916927955e-01});
}

TEST(SoapGolden, MetaByQr) {
  const auto weights = run(meta("qr"), 2);
  expect_close(weights[0],
               {-7.534141729457e-01, 4.927977518675e-01, 8.596041684171e-03,
                -8.767385238054e-03, -4.917876151950e-01, 7.587538857539e-01,
                7.586435187108e-01, 2.600831785579e-01, -2.470520555198e-01});
  expect_close(weights[1],
               {-7.592168031404e-01, 4.886777506757e-01, 9.699100797686e-03,
                -6.770648072125e-03, -4.972341496998e-01, 7.591770276618e-01,
                7.612421797996e-01, 2.583078730146e-01, -2.391652326961e-01});
}

}  // namespace
}  // namespace canzona::rules::soap_golden_test
