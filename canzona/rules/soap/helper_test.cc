// SOAP with two factors and a helper: owner and helper have the bits of one
// rank, update and states.
#include "canzona/rules/soap/shared.h"

#include <gmock/gmock.h>

#include "canzona/linalg/test_remote_engine.h"
#include "canzona/rules/soap/facts.h"
#include "canzona/rules/test_team_steps.h"

namespace canzona::rules::soap_helper_test {
namespace {

using namespace team_steps;

RuleOptions two_factors(const RuleOptions& more = {}) {
  RuleOptions options = {{"device", "cpu"}, {"precondition_frequency", "3"}};
  for (const auto& [name, value] : more) options[name] = value;
  return options;
}

void expect_pair_as_one(
    const RuleOptions& options, MatrixShape shape, int phase = 0,
    const MakeEngine& make_engine = [] { return make_cpu_engine(); }) {
  ASSERT_TRUE(make_rule_facts("soap", options)->strips(shape).has_helper());
  expect_team_as_one(options, shape, 2, phase, make_engine);
}

TEST(SoapHelper, GivesTheBitsOfOneRank) {
  for (const Variant& variant : variants())
    for (const MatrixShape shape : {MatrixShape{12, 30}, {30, 12}, {20, 20}}) {
      SCOPED_TRACE(variant.name);
      expect_pair_as_one(two_factors(variant.options), shape);
    }
}

TEST(SoapHelper, GivesThemForSidesOfOne) {
  for (const MatrixShape shape : {MatrixShape{1, 17}, {17, 1}, {1, 1}})
    expect_pair_as_one(two_factors(), shape);
}

// Grafting looks at the gradient when the update is there.
TEST(SoapHelper, GivesThemWithGrafting) {
  for (const std::string kind : {"sgd", "adagrad", "rmsprop", "adam"}) {
    SCOPED_TRACE(kind);
    expect_pair_as_one(
        two_factors({{"grafting", kind}, {"momentum_basis", "original"}}),
        {12, 30});
  }
}

TEST(SoapHelper, FollowsThePhase) {
  for (const int phase : {0, 1, 2})
    expect_pair_as_one(two_factors({{"phases", "3"}}), {12, 30}, phase);
}

// Only the engine can access the memory.
TEST(SoapHelper, OnADeviceGivesTheBitsOfOneRank) {
  expect_pair_as_one(two_factors({{"kl", "on"}}), {12, 30}, 0,
                     [] { return std::make_unique<RemoteEngine>(1); });
}

}  // namespace
}  // namespace canzona::rules::soap_helper_test
