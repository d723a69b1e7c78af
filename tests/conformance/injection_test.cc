#include "tests/conformance/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/test_fixture.h"

namespace canzona::tests::injection_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Values = std::vector<double>;

// SOAP on a 2 x 2 tensor whose left basis is injected at step 1.
class InjectionTest : public testing::Test {
 protected:
  InjectionTest()
      : fixture_(make_fixture()),
        rule_(make_rule("soap", {{"preset", "original"}}, DType::kFp64)),
        names_(make_state_names(*rule_, {2, 2})),
        memory_(*engine_, *rule_, {2, 2}),
        injection_(fixture_, *rule_, *names_, memory_, findings_) {
    injection_.begin(1);
  }

  static Fixture make_fixture() {
    TestFixture f = adamw_fixture();
    f.metadata["mode"] = "injected";
    f.tensors["inject.basis_left.1"] = f64({2, 2}, {0, 1, 1, 0});
    f.tensors["inject.perm_left.1"] = test_tensor<int64_t>("I64", {2}, {1, 0});
    f.tensors["inject.perm_right.1"] = test_tensor<int64_t>("I64", {2}, {1, 1});
    return f.read();
  }

  bool give_basis(int axis, Values& q) {
    return injection_.basis({.axis = axis}, matrices(q.data(), 2, 2), {});
  }

  Fixture fixture_;
  std::unique_ptr<Engine> engine_ = make_cpu_engine();
  std::unique_ptr<Rule> rule_;
  std::unique_ptr<StateNames> names_;
  TensorMemory memory_;
  Findings findings_;
  Injection injection_;
};

TEST_F(InjectionTest, PutsTheReferencesBasisInPlaceOfOurs) {
  Values q = {1, 0, 0, 1};
  EXPECT_TRUE(give_basis(0, q));
  EXPECT_THAT(q, ElementsAre(0, 1, 1, 0));
  EXPECT_TRUE(findings_.passed()) << findings_.reason();
}

TEST_F(InjectionTest, NoticesABasisOfOursThatIsNotOrthogonal) {
  Values q = {1, 1e-6, 0, 1};
  give_basis(0, q);
  EXPECT_FALSE(findings_.passed());
  EXPECT_THAT(findings_.reason(), HasSubstr("orthogonality"));
}

TEST_F(InjectionTest, NoticesABasisThatDoesNotFitTheFactor) {
  const auto factor = names_->find(0, "factor_left");
  memory_.set(memory_.state(factor->state), Values{3, 0, 0, 1});
  Values q = {0.8, 0.6, -0.6, 0.8};
  give_basis(0, q);
  EXPECT_FALSE(findings_.passed());
  EXPECT_THAT(findings_.reason(), HasSubstr("diagonality"));
}

TEST_F(InjectionTest, NoticesADecompositionThatTheReferenceDidNotMake) {
  Values q = {1, 0, 0, 1};
  give_basis(1, q);
  EXPECT_THAT(findings_.reason(), HasSubstr("inject.basis_right.1"));
}

TEST_F(InjectionTest, NoticesADecompositionThatWeDidNotMake) {
  injection_.end();
  EXPECT_THAT(findings_.reason(), HasSubstr("no such decomposition"));
}

TEST_F(InjectionTest, GivesTheReferencesOrderOfColumns) {
  std::vector<int64_t> columns = {0, 1};
  injection_.order({.axis = 0}, columns);
  EXPECT_THAT(columns, ElementsAre(1, 0));
}

TEST_F(InjectionTest, RefusesWhatIsNoOrder) {
  std::vector<int64_t> columns = {0, 1};
  EXPECT_THROW(injection_.order({.axis = 1}, columns), UsageError);
  std::vector<int64_t> more = {0, 1, 2};
  EXPECT_THROW(injection_.order({.axis = 0}, more), UsageError);
}

}  // namespace
}  // namespace canzona::tests::injection_test
