#include "canzona/comm/node_group.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "canzona/base/error.h"
#include "canzona/comm/test_node_group.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/test_ranks.h"

namespace canzona::comm::node_group_test {
namespace {

// Ways in which lengths of pieces differ.
using Lengths = std::function<int64_t(int rank)>;
const std::vector<Lengths> kLengths = {
    [](int) { return 0; },
    [](int) { return 1; },
    [](int rank) { return rank == 2 ? 1 : 0; },
    [](int rank) { return 5 + rank % 3; },
    [](int rank) { return rank % 2 == 0 ? 40 * rank : 0; },
    [](int rank) { return 300 - rank; }};

std::vector<int64_t> counts_of(int num_ranks, const Lengths& length) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < num_ranks; ++rank) counts.push_back(length(rank));
  return counts;
}

int64_t before(const std::vector<int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

std::vector<float> own_piece(const std::vector<float>& whole,
                             const std::vector<int64_t>& counts, int rank) {
  const auto begin = whole.begin() + before(counts, rank);
  return {begin, begin + counts[static_cast<size_t>(rank)]};
}

void expect_same_bits(const std::vector<float>& got,
                      const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(same_bits(got[i], expected[i]))
        << "element " << i << ": " << got[i] << ", expected " << expected[i];
}

void check_gather(Communicator& world, NodeGroup& group,
                  const std::vector<int64_t>& counts) {
  const auto own =
      test_piece(world.rank(), counts[static_cast<size_t>(world.rank())]);
  std::vector<int64_t> bytes = counts;
  for (int64_t& count : bytes) count *= 4;
  const auto all = static_cast<size_t>(before(counts, world.size()));
  std::vector<float> got(all), expected(all), in_place(all);
  world.all_gather_v(bytes_of(own), bytes, bytes_of(expected));
  group.all_gather_v(bytes_of(own), bytes, bytes_of(got));
  expect_same_bits(got, expected);
  std::ranges::copy(own, in_place.begin() + before(counts, world.rank()));
  const auto place = bytes_of(in_place).subspan(
      static_cast<size_t>(before(bytes, world.rank())), own.size() * 4);
  group.all_gather_v(place, bytes, bytes_of(in_place));
  expect_same_bits(in_place, expected);
}

// Element i of a tree over the ranks of every node, then over nodes.
float node_oracle_at(const NodeShape& shape, int64_t i) {
  std::vector<float> nodes;
  for (int node = 0; node < shape.nodes; ++node) {
    std::vector<float> values;
    for (int place = 0; place < shape.per_node; ++place)
      values.push_back(test_value(node * shape.per_node + place, i));
    nodes.push_back(oracle_sum(values));
  }
  return oracle_sum(nodes);
}

void check_scatter(Communicator& world, NodeGroup& group,
                   const NodeShape& shape, const std::vector<int64_t>& counts) {
  const int64_t all = before(counts, world.size());
  const int64_t first = before(counts, world.rank());
  std::vector<float> data = test_piece(world.rank(), all);
  group.reduce_scatter_v(Reduction::kFp32Sum, bytes_of(data), counts);
  const std::vector<float> sum = own_piece(data, counts, world.rank());
  std::vector<float> expected;
  for (int64_t i = 0; i < std::ssize(sum); ++i)
    expected.push_back(node_oracle_at(shape, first + i));
  expect_same_bits(sum, expected);
}

class OfShape : public testing::TestWithParam<NodeShape> {
 protected:
  template <class Check>
  void on_all(Check check) {
    for (const int64_t segment : {16, 1024, 1 << 20})
      run_test_ranks(GetParam().size(),
                     {.segment_bytes = segment,
                      .check_collectives = segment == 1024,
                      .ranks_per_node = GetParam().per_node},
                     [&](Communicator& world) {
                       NodeGroup group = found_nodes(world, GetParam());
                       EXPECT_EQ(group.rank(), world.rank());
                       EXPECT_EQ(group.size(), world.size());
                       for (const Lengths& length : kLengths)
                         check(world, group, counts_of(world.size(), length));
                     });
  }
};

TEST_P(OfShape, GathersAsAllWithAllDo) {
  on_all([](Communicator& world, NodeGroup& group,
            const std::vector<int64_t>& counts) {
    check_gather(world, group, counts);
  });
}

TEST_P(OfShape, SumsAreTreesOverRanksThenNodes) {
  on_all([](Communicator& world, NodeGroup& group,
            const std::vector<int64_t>& counts) {
    check_scatter(world, group, GetParam(), counts);
  });
}

TEST_P(OfShape, SumsHaveTheBitsOfOneTreeWhereNodesArePowersOfTwo) {
  on_all([](Communicator& world, NodeGroup& group,
            const std::vector<int64_t>& counts) {
    if ((GetParam().per_node & (GetParam().per_node - 1)) != 0) return;
    const int64_t all = before(counts, world.size());
    const std::vector<float> input = test_piece(world.rank(), all);
    std::vector<float> data = input;
    std::vector<float> expected(
        static_cast<size_t>(counts[static_cast<size_t>(world.rank())]));
    world.reduce_scatter_v(Reduction::kFp32Sum, bytes_of(input), counts,
                           bytes_of(expected));
    group.reduce_scatter_v(Reduction::kFp32Sum, bytes_of(data), counts);
    expect_same_bits(own_piece(data, counts, world.rank()), expected);
  });
}

// Every piece, and every partial sum, crosses to each other node once.
TEST_P(OfShape, SendsOncePerNode) {
  on_all([](Communicator& world, NodeGroup& group,
            const std::vector<int64_t>& counts) {
    const NodeShape shape = GetParam();
    const TrafficLog::Row gathered = group.traffic(Operation::kAllGather);
    const TrafficLog::Row summed = group.traffic(Operation::kReduceScatter);
    check_gather(world, group, counts);
    check_scatter(world, group, shape, counts);
    const int place = world.rank() % shape.per_node;
    int64_t mine = 0, others = 0;  // at this position on all nodes, at others
    for (int rank = 0; rank < world.size(); ++rank)
      (rank % shape.per_node == place ? mine : others) +=
          4 * counts[static_cast<size_t>(rank)];
    const int64_t own = 4 * counts[static_cast<size_t>(world.rank())];
    const TrafficLog::Row gathers = group.traffic(Operation::kAllGather);
    EXPECT_EQ(gathers.sent_slow - gathered.sent_slow,
              2 * own * (shape.nodes - 1));
    EXPECT_EQ(gathers.sent - gathered.sent,
              2 * (own * (shape.nodes - 1) + mine * (shape.per_node - 1)));
    const TrafficLog::Row sums = group.traffic(Operation::kReduceScatter);
    EXPECT_EQ(sums.sent_slow - summed.sent_slow, mine - own);
    EXPECT_EQ(sums.sent - summed.sent, mine - own + others);
  });
}

// All three legs are counted as one all-reduce and nothing else.
TEST_P(OfShape, ReducesOnAllRanksAsAllWithAllDo) {
  on_all([](Communicator& world, NodeGroup& group,
            const std::vector<int64_t>& counts) {
    const NodeShape shape = GetParam();
    if ((shape.per_node & (shape.per_node - 1)) != 0) return;
    const int64_t all = before(counts, world.size());
    for (const Reduction reduction :
         {Reduction::kFp32Sum, Reduction::kFp32SumOfBf16}) {
      std::vector<float> expected = test_piece(world.rank(), all);
      std::vector<float> data = expected;
      world.all_reduce(reduction, bytes_of(expected));
      const TrafficLog::Row before_it = group.traffic(Operation::kAllReduce);
      const TrafficLog::Row others[] = {
          group.traffic(Operation::kReduceScatter),
          group.traffic(Operation::kAllGather)};
      group.all_reduce_inside(reduction, bytes_of(data), {});
      group.all_reduce_across(reduction, bytes_of(data), {});
      group.all_reduce_back(reduction, bytes_of(data), {});
      expect_same_bits(data, expected);
      EXPECT_EQ(group.traffic(Operation::kReduceScatter).sent, others[0].sent);
      EXPECT_EQ(group.traffic(Operation::kAllGather).sent, others[1].sent);
      const TrafficLog::Row after = group.traffic(Operation::kAllReduce);
      const auto share = [](int64_t whole, int i, int n) {
        return whole * (i + 1) / n - whole * i / n;
      };
      const int place = world.rank() % shape.per_node;
      const int node = world.rank() / shape.per_node;
      const int64_t own = share(all, place, shape.per_node);
      const int64_t mine = share(own, node, shape.nodes);
      const int64_t across = 4 * (own - mine + mine * (shape.nodes - 1));
      EXPECT_EQ(after.sent_slow - before_it.sent_slow, across);
      EXPECT_EQ(after.sent - before_it.sent,
                across + (all - own) * wire_bytes(reduction) +
                    4 * own * (shape.per_node - 1));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(NodeGroup, OfShape,
                         testing::Values(NodeShape{1, 4}, NodeShape{2, 2},
                                         NodeShape{2, 4}, NodeShape{4, 2},
                                         NodeShape{3, 2}, NodeShape{2, 3},
                                         NodeShape{7, 1}));

TEST(NodeGroup, IsOneCommunicatorWithoutOthersAcross) {
  run_test_ranks(4, {.ranks_per_node = 2}, [](Communicator& world) {
    NodeGroup group(world.split(0, world.rank(), "all"), nullptr,
                    cpu_wire_ops());
    const std::vector<int64_t> counts = {3, 0, 5, 1};
    check_gather(world, group, counts);
    check_scatter(world, group, {1, 4}, counts);
    const int64_t own = counts[static_cast<size_t>(world.rank())] * 4;
    EXPECT_EQ(group.traffic(Operation::kAllGather).sent, 2 * own * 3);
    EXPECT_EQ(group.traffic(Operation::kAllGather).sent_slow, 2 * own * 2);
  });
}

TEST(NodeGroup, RoundsOnceWhereBf16Travels) {
  run_test_ranks(4, {.ranks_per_node = 2}, [](Communicator& world) {
    NodeGroup group = found_nodes(world, {2, 2});
    const std::vector<int64_t> counts = {7, 2, 0, 9};
    std::vector<float> data = test_piece(world.rank(), 18);
    group.reduce_scatter_v(Reduction::kFp32SumOfBf16, bytes_of(data), counts);
    const std::vector<float> sum = own_piece(data, counts, world.rank());
    std::vector<float> expected;
    for (int64_t i = 0; i < std::ssize(sum); ++i) {
      const int64_t at = before(counts, world.rank()) + i;
      const auto value = [&](int r) { return oracle_bf16(test_value(r, at)); };
      expected.push_back((value(0) + value(1)) + (value(2) + value(3)));
    }
    expect_same_bits(sum, expected);
    // Two bytes per element inside, four across.
    const int place = world.rank() % 2, beside = 1 - place;
    const auto at_place = [&](int p) {
      return counts[static_cast<size_t>(p)] +
             counts[static_cast<size_t>(p + 2)];
    };
    const TrafficLog::Row sums = group.traffic(Operation::kReduceScatter);
    const int64_t across =
        4 * counts[static_cast<size_t>((world.rank() + 2) % 4)];
    EXPECT_EQ(sums.sent_slow, across);
    EXPECT_EQ(sums.sent, across + 2 * at_place(beside));
  });
}

TEST(NodeGroup, RefusesCountsThatDoNotFillTheBuffer) {
  run_test_ranks(4, [](Communicator& world) {
    NodeGroup group = found_nodes(world, {2, 2});
    std::vector<float> own(1), whole(4);
    const auto sum = [&](const std::vector<int64_t>& counts) {
      group.reduce_scatter_v(Reduction::kFp32Sum, bytes_of(whole), counts);
    };
    EXPECT_THROW(sum({1, 1, 1}), UsageError);
    EXPECT_THROW(sum({1, 1, 1, 2}), UsageError);
    EXPECT_THROW(sum({2, -1, 1, 2}), UsageError);
    const auto gather = [&](const std::vector<int64_t>& bytes) {
      group.all_gather_v(bytes_of(own), bytes, bytes_of(whole));
    };
    EXPECT_THROW(gather({4, 4, 4, 3}), UsageError);
    EXPECT_THROW(gather({8, 0, 8, 0}), UsageError);
    sum({1, 1, 1, 1});  // no rank has begun one
  });
}

}  // namespace
}  // namespace canzona::comm::node_group_test
