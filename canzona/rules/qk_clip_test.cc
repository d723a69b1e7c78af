#include "canzona/rules/qk_clip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "canzona/base/error.h"

namespace canzona::rules::qk_clip_test {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(QkClip, QueriesOfAKeyAreClippedTogetherWithIt) {
  const QkFactors f = qk_factors(std::array{400.0, 40.0, 100.0, -99.0}, 2, {});
  EXPECT_THAT(f.query, ElementsAre(0.5, 0.5, 1, 1));
  EXPECT_THAT(f.query_rope, ElementsAre(0.25, 0.25, 1, 1));
  EXPECT_THAT(f.key, ElementsAre(0.5, 1));
}

TEST(QkClip, SharesOfQueryAndKeyMakeUpTheFactor) {
  const QkFactors f =
      qk_factors(std::array{160.0}, 1, {.tau = 10, .alpha = 0.25});
  EXPECT_THAT(f.query, ElementsAre(DoubleEq(0.5)));
  EXPECT_THAT(f.key, ElementsAre(DoubleEq(0.125)));
}

TEST(QkClip, QueriesAloneTakeAllOfTheirOwn) {
  const QkFactors f = qk_factors(std::array{400.0, 200.0, 1.0, 1.0}, 2,
                                 {.queries_alone = true});
  EXPECT_THAT(f.query, ElementsAre(0.25, 0.5, 1, 1));
  EXPECT_EQ(f.query, f.query_rope);
  EXPECT_THAT(f.key, ElementsAre(1, 1));
}

TEST(QkClip, NamesTheHeadThatIsNotFinite) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double bad : {kInf, -kInf, kInf - kInf})
    EXPECT_THAT(([&] {
                  qk_factors(std::array{1.0, bad}, 1, {});
                }),
                ThrowsMessage<NumericalError>(HasSubstr("of head 1 is ")));
}

TEST(QkClip, RefusesSettingsOutOfRange) {
  const auto refused = [](const QkClip& clip, int64_t groups,
                          const char* text) {
    EXPECT_THAT(([&] {
                  qk_factors(std::array{1.0, 2.0}, groups, clip);
                }),
                ThrowsMessage<UsageError>(HasSubstr(text)));
  };
  refused({.tau = 0}, 1, "tau is 0");
  refused({.alpha = 1.5}, 1, "alpha is 1.5");
  refused({.alpha = -0.5}, 1, "alpha is -0.5");
  refused({}, 3, "3 keys do not divide 2 query heads");
}

}  // namespace
}  // namespace canzona::rules::qk_clip_test
