#include "canzona/runtime/digest/rank_digest.h"

#include <gtest/gtest.h>

#include <vector>

namespace canzona::runtime::logical_digest_test {
namespace {

std::string digest_of(const std::vector<float>& values, size_t cut,
                      uint64_t seed = 7) {
  LogicalDigest digest;
  const std::span<const float> all(values);
  digest.add(seed, static_cast<int64_t>(cut), all.subspan(cut));
  digest.add(seed, 0, all.first(cut));
  return digest.text();
}

TEST(LogicalDigest, DoesNotDependOnWhoAddsWhat) {
  const std::vector<float> values = {1, -2, 0.5, 0, 3};
  for (size_t cut = 0; cut <= values.size(); ++cut)
    EXPECT_EQ(digest_of(values, cut), digest_of(values, 0));
  EXPECT_EQ(digest_of(values, 0).size(), 32U);
}

TEST(LogicalDigest, TellsValuePlaceAndName) {
  const std::vector<float> values = {1, 2, 2};
  EXPECT_NE(digest_of(values, 0), digest_of({2, 1, 2}, 0));
  EXPECT_NE(digest_of({0.0F}, 0), digest_of({-0.0F}, 0));
  EXPECT_NE(digest_of(values, 0), digest_of(values, 0, 8));
  EXPECT_NE(name_seed("a"), name_seed("b"));
}

}  // namespace
}  // namespace canzona::runtime::logical_digest_test
