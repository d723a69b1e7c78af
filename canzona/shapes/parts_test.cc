#include "canzona/shapes/tensor.h"

#include <gtest/gtest.h>

#include <set>

namespace canzona::shapes_parts_test {
namespace {

TEST(Parts, QkvLiesByQueryGroup) {
  const std::vector<Part> parts = qkv_parts(64, 8, 128);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0], (Part{"q", {0, 1024, 1280, 8}, 64}));
  EXPECT_EQ(parts[1], (Part{"k", {1024, 128, 1280, 8}, 8}));
  EXPECT_EQ(parts[2], (Part{"v", {1152, 128, 1280, 8}, 8}));
}

TEST(Parts, GateLiesBeforeUp) {
  const std::vector<Part> parts = gate_up_parts(3);
  EXPECT_EQ(parts[0], (Part{"gate", {0, 3, 3, 1}}));
  EXPECT_EQ(parts[1], (Part{"up", {3, 3, 3, 1}}));
  EXPECT_TRUE(is_gate_up(parts));
  EXPECT_FALSE(is_gate_up(head_part("q", 6, 2)));
  EXPECT_FALSE(is_gate_up({}));
}

// Every row of a tensor belongs to exactly one part.
void expect_partition(const std::vector<Part>& parts, int64_t rows) {
  std::set<int64_t> seen;
  for (const Part& part : parts) {
    EXPECT_EQ(part.rows.rows() % part.heads, 0);
    for (int64_t i = 0; i < part.rows.rows(); ++i) {
      EXPECT_TRUE(seen.insert(part.rows.row(i)).second) << part.name << i;
    }
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), rows);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), rows - 1);
}

TEST(Parts, CoverAllRowsOnce) {
  for (const int64_t kv_heads : {1, 2, 3, 8}) {
    for (const int64_t per_group : {1, 2, 5}) {
      for (const int64_t dim : {1, 2, 7}) {
        const int64_t heads = kv_heads * per_group;
        expect_partition(qkv_parts(heads, kv_heads, dim),
                         (heads + 2 * kv_heads) * dim);
        expect_partition(head_part("q", heads * dim, heads), heads * dim);
      }
    }
  }
  expect_partition(gate_up_parts(1), 2);
  expect_partition(gate_up_parts(13), 26);
}

}  // namespace
}  // namespace canzona::shapes_parts_test
