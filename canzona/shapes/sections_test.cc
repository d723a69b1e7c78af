#include "canzona/shapes/tensor.h"

#include <gtest/gtest.h>

#include <set>

namespace canzona::shapes::shapes_sections_test {
namespace {

TEST(Sections, QkvLiesByQueryGroup) {
  const std::vector<Section> sections = qkv_sections(64, 8, 128);
  ASSERT_EQ(sections.size(), 3u);
  EXPECT_EQ(sections[0], (Section{"q", {0, 1024, 1280, 8}, 64}));
  EXPECT_EQ(sections[1], (Section{"k", {1024, 128, 1280, 8}, 8}));
  EXPECT_EQ(sections[2], (Section{"v", {1152, 128, 1280, 8}, 8}));
}

TEST(Sections, GateLiesBeforeUp) {
  const std::vector<Section> sections = gate_up_sections(3);
  EXPECT_EQ(sections[0], (Section{"gate", {0, 3, 3, 1}}));
  EXPECT_EQ(sections[1], (Section{"up", {3, 3, 3, 1}}));
  EXPECT_TRUE(is_gate_up(sections));
  EXPECT_FALSE(is_gate_up(head_section("q", 6, 2)));
  EXPECT_FALSE(is_gate_up({}));
}

// Every row of a tensor belongs to exactly one section.
void expect_partition(const std::vector<Section>& sections, int64_t rows) {
  std::set<int64_t> seen;
  for (const Section& section : sections) {
    EXPECT_EQ(section.rows.rows() % section.heads, 0);
    for (int64_t i = 0; i < section.rows.rows(); ++i) {
      EXPECT_TRUE(seen.insert(section.rows.row(i)).second) << section.name << i;
    }
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), rows);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), rows - 1);
}

TEST(Sections, CoverAllRowsOnce) {
  for (const int64_t kv_heads : {1, 2, 3, 8}) {
    for (const int64_t per_group : {1, 2, 5}) {
      for (const int64_t dim : {1, 2, 7}) {
        const int64_t heads = kv_heads * per_group;
        expect_partition(qkv_sections(heads, kv_heads, dim),
                         (heads + 2 * kv_heads) * dim);
        expect_partition(head_section("q", heads * dim, heads), heads * dim);
      }
    }
  }
  expect_partition(gate_up_sections(1), 2);
  expect_partition(gate_up_sections(13), 26);
}

}  // namespace
}  // namespace canzona::shapes::shapes_sections_test
