#include "canzona/plan/storage/stored_pieces.h"

#include <gmock/gmock.h>

#include <set>

#include "canzona/base/error.h"
#include "canzona/plan/storage/test_layouts.h"

namespace canzona::plan::storage_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

CutTensor two_ranks(std::vector<Box> zero, std::vector<Box> one) {
  return storage_tensor("w", {4, 2}, {std::move(zero), std::move(one)});
}

void expect_refused(const CutTensor& tensor, const std::string& says) {
  EXPECT_THAT([&] { stored_pieces(tensor); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("tensor 'w'"), HasSubstr(says))));
}

TEST(Storage, RanksWithTheSameBoxAreReplicas) {
  const auto tensor = storage_tensor("w", {4, 2},
                                     {{{{0, 0}, {2, 2}}},
                                      {{{2, 0}, {2, 2}}},
                                      {{{0, 0}, {2, 2}}},
                                      {{{2, 0}, {2, 2}}}});
  const StoredPieces pieces = stored_pieces(tensor);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_THAT(pieces[0].ranks, ElementsAre(0, 2));
  EXPECT_THAT(pieces[1].ranks, ElementsAre(1, 3));
  EXPECT_THAT(replica_sets(tensor, pieces),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(Storage, ABoxOutsideTheShapeNamesItsRank) {
  expect_refused(two_ranks({{{0, 0}, {2, 2}}}, {{{2, 0}, {3, 2}}}),
                 "rank 1: box [2:5, 0:2] lies outside the shape [4, 2]");
  expect_refused(two_ranks({{{0}, {4}}}, {}),
                 "rank 0: a box with 1 beginnings and 1 counts does not have "
                 "the dimensions of the shape [4, 2]");
  // Neither list may be read beyond the shorter one.
  expect_refused(two_ranks({{{0, 0}, {4}}}, {}),
                 "rank 0: a box with 2 beginnings and 1 counts does not");
  expect_refused(two_ranks({{{0}, {4, 2}}}, {}),
                 "rank 0: a box with 1 beginnings and 2 counts does not");
}

TEST(Storage, AHoleIsNamedWithTheRankBeforeIt) {
  expect_refused(two_ranks({{{0, 0}, {2, 2}}}, {{{2, 0}, {1, 2}}}),
                 "no rank stores element [3, 0]: the boxes of all ranks have 6 "
                 "of 8 elements; the box before it is [2:3, 0:2] of "
                 "rank 1");
  expect_refused(two_ranks({{{0, 0}, {4, 1}}}, {{{2, 1}, {2, 1}}}),
                 "no rank stores element [0, 1]");
  expect_refused(two_ranks({}, {}), "no rank stores element [0, 0]");
}

TEST(Storage, APartialOverlapNamesBothRanks) {
  expect_refused(two_ranks({{{0, 0}, {3, 2}}}, {{{2, 0}, {2, 2}}}),
                 "box [0:3, 0:2] of rank 0 and box [2:4, 0:2] of "
                 "rank 1 overlap");
  expect_refused(two_ranks({{{0, 0}, {4, 2}}, {{0, 0}, {4, 2}}}, {}),
                 "rank 0 stores box [0:4, 0:2] twice");
}

TEST(Storage, ReplicasOfSomeBoxesOnlyAreRefused) {
  const auto tensor = storage_tensor(
      "w", {4, 2},
      {{{{0, 0}, {2, 2}}}, {{{2, 0}, {2, 2}}}, {{{0, 0}, {2, 2}}}});
  EXPECT_THAT(
      [&] { replica_sets(tensor, stored_pieces(tensor)); },
      ThrowsMessage<UsageError>(AllOf(
          HasSubstr("tensor 'w'"), HasSubstr("ranks 0, 2"), HasSubstr("rank 1"),
          HasSubstr("the same number of replicas"))));
}

TEST(Storage, ARankOfTwoSetsIsRefused) {
  const auto tensor = storage_tensor("w", {4, 2},
                                     {{{{0, 0}, {2, 2}}, {{2, 0}, {2, 2}}},
                                      {{{0, 0}, {2, 2}}},
                                      {{{2, 0}, {2, 2}}}});
  EXPECT_THAT([&] { replica_sets(tensor, stored_pieces(tensor)); },
              ThrowsMessage<UsageError>(HasSubstr("in all their boxes")));
}

// The oracle counts for every element how many boxes hold it; it shares no code
// with the checks.
using Elements = std::set<std::vector<int64_t>>;

Elements elements_of(const Box& box) {
  Elements out{{}};
  for (size_t d = 0; d < box.first.size(); ++d) {
    Elements longer;
    for (const auto& prefix : out) {
      for (int64_t i = 0; i < box.count[d]; ++i) {
        auto element = prefix;
        element.push_back(box.first[d] + i);
        longer.insert(element);
      }
    }
    out = longer;
  }
  return out;
}

bool is_fine(const CutTensor& tensor) {
  const Elements all = elements_of(whole_box(tensor.shape));
  Elements seen;
  std::vector<std::pair<size_t, Elements>> boxes;  // rank, elements
  for (size_t r = 0; r < tensor.stored.size(); ++r)
    for (const Box& box : tensor.stored[r])
      boxes.emplace_back(r, elements_of(box));
  for (size_t i = 0; i < boxes.size(); ++i) {
    const auto& [rank, own] = boxes[i];
    for (const auto& element : own) {
      if (!all.contains(element)) return false;
      seen.insert(element);
    }
    for (size_t j = 0; j < i; ++j) {
      const auto& [other_rank, other] = boxes[j];
      if (own == other && rank != other_rank) continue;
      for (const auto& element : own)
        if (other.contains(element)) return false;
    }
  }
  return seen == all;
}

// One box is moved, changed in size, left out or given to another rank.
void tamper(Random& random, CutTensor& tensor) {
  auto& boxes = tensor.stored[random.next() % tensor.stored.size()];
  if (boxes.empty()) return;
  const size_t d = random.next() % tensor.shape.size();
  switch (random.next() % 5) {
    case 0:
      boxes[0].first[d] += random.between(0, 1);
      break;
    case 1:
      boxes[0].count[d] += random.between(0, 1);
      break;
    case 2:
      if (boxes[0].count[d] > 1) --boxes[0].count[d];
      break;
    case 3:
      boxes.clear();
      break;
    default:
      tensor.stored[random.next() % tensor.stored.size()] = boxes;
  }
}

TEST(Storage, AgreesWithElementsOnEveryLayout) {
  Random random(11);
  int64_t fine = 0, refused = 0;
  for (const int32_t world : {1, 2, 4, 7, 8}) {
    for (const int64_t rows : {1, 2, 3, 5, 8}) {
      const std::vector<std::vector<int64_t>> shapes{
          {rows, 3}, {3, rows}, {rows}, {2, rows, 2}};
      for (const auto& shape : shapes) {
        const auto dims = static_cast<int32_t>(shape.size());
        for (const auto& layout : all_layouts(world, std::max(dims, 2))) {
          if (dims == 1 && std::any_of(layout.begin(), layout.end(),
                                       [](auto& a) { return a.dim > 0; }))
            continue;
          CutTensor tensor =
              storage_tensor("w", shape, stored_by(shape, layout));
          for (int change = 0; change < 3; ++change) {
            const bool expected = is_fine(tensor);
            bool found = true;
            try {
              stored_pieces(tensor);
            } catch (const UsageError&) {
              found = false;
            }
            ASSERT_EQ(found, expected)
                << "world " << world << ", shape " << list_text(shape);
            ++(expected ? fine : refused);
            ASSERT_TRUE(expected || change > 0);
            tamper(random, tensor);
          }
        }
      }
    }
  }
  EXPECT_GT(fine, 1000);
  EXPECT_GT(refused, 500);
}

TEST(Storage, PiecesHaveTheRanksOfEveryElement) {
  for (const int32_t world : {1, 2, 4, 7, 8}) {
    const std::vector<int64_t> shape{3, 5, 2};
    for (const auto& layout : all_layouts(world, 3)) {
      const auto tensor = storage_tensor("w", shape, stored_by(shape, layout));
      const StoredPieces pieces = stored_pieces(tensor);
      for (const StoredPiece& piece : pieces) {
        for (const auto& element : elements_of(piece.box)) {
          std::vector<int32_t> ranks;
          for (int32_t r = 0; r < world; ++r)
            for (const Box& box : tensor.stored[index(r)])
              if (elements_of(box).contains(element)) ranks.push_back(r);
          ASSERT_EQ(ranks, piece.ranks);
        }
      }
    }
  }
}

}  // namespace
}  // namespace canzona::plan::storage_test
