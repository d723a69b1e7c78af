#include "canzona/base/master_bits.h"

#include <gtest/gtest.h>

#include "canzona/base/random.h"
#include "canzona/base/test_master_bits.h"

namespace canzona {
namespace {

TEST(MasterBits, RoundHalvesAwayFromZero) {
  EXPECT_EQ(weight_of_master(0x3F800000), 0x3F80);
  EXPECT_EQ(weight_of_master(0x3F807FFF), 0x3F80);
  EXPECT_EQ(weight_of_master(0x3F808000), 0x3F81) << "half, from an even one";
  EXPECT_EQ(weight_of_master(0x3F818000), 0x3F82) << "half, from an odd one";
  EXPECT_EQ(weight_of_master(0xBF808000), 0xBF81) << "half, negative";
  EXPECT_EQ(weight_of_master(0x7F7FFFFF), 0x7F80) << "beyond the largest";
  EXPECT_EQ(weight_of_master(0xFF800000), 0xFF80);
  EXPECT_EQ(weight_of_master(0x7F800001), 0x7FC0) << "NaN";
  EXPECT_EQ(remainder_of_master(0x7F800001), 0);
}

TEST(MasterBits, RestoreASampleOfAllNumbers) {
  for (uint32_t upper = 0; upper < 1U << 16; ++upper)
    for (const uint32_t lower : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      ASSERT_TRUE(is_right_master(upper << 16 | lower)) << upper;
  for (uint64_t i = 0; i < 200'000; ++i) {
    const auto master = static_cast<uint32_t>(bits_at(1, i));
    ASSERT_TRUE(is_right_master(master)) << master;
  }
}

}  // namespace
}  // namespace canzona
