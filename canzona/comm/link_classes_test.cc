// Checks the bytes that leave a node, for every operation, against an
// independent count: a table of what every rank of a group sends to every
// other.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/test_ranks.h"

namespace canzona::comm::link_classes_test {
namespace {

constexpr auto kRanks = {1, 2, 4, 7, 8};
constexpr auto kRanksPerNode = {1, 2, 3, 4};

int64_t draw(uint64_t seed, int64_t place, int64_t below) {
  return static_cast<int64_t>(bits_at(seed, static_cast<uint64_t>(place)) %
                              static_cast<uint64_t>(below));
}

// Members of one group by their numbers in the world, in order.
struct Members {
  std::vector<int> world = {};
  int self = 0;
  int ranks_per_node = 1;

  int size() const { return static_cast<int>(world.size()); }
  int node(int member) const {
    return world[static_cast<size_t>(member)] / ranks_per_node;
  }
  // Returns what this rank sends to others, from a table of pairs.
  SentBytes sent(const std::function<int64_t(int from, int to)>& bytes) const {
    SentBytes sum;
    for (int from = 0; from < size(); ++from)
      for (int to = 0; to < size(); ++to) {
        if (from != self || to == self) continue;
        sum.all += bytes(from, to);
        if (node(from) != node(to)) sum.slow += bytes(from, to);
      }
    return sum;
  }
};

class Traffic {
 public:
  Traffic(Communicator& group, const Members& members, uint64_t seed)
      : group_(group), members_(members), seed_(seed) {}

  void check_moves() {
    const auto own = static_cast<size_t>(count(group_.rank(), 0));
    std::vector<int64_t> counts = counts_of([&](int r) { return count(r, 0); });
    std::vector<std::byte> mine(own), whole(total(counts));
    group_.all_gather_v(mine, counts, whole);
    expect(Operation::kAllGather,
           [&](int from, int) { return count(from, 0); });

    const auto places = counts_of([](int r) { return int64_t{r} * 2000; });
    const int self = group_.rank();
    std::vector<std::byte> out(8 * 2000), in(8 * 2000);
    group_.all_to_all_v(
        {out, counts_of([&](int r) { return count(self, r + 9); }), places},
        {in, counts_of([&](int r) { return count(r, self + 9); }), places});
    expect(Operation::kAllToAll,
           [&](int from, int to) { return count(from, to + 9); });

    const int root = static_cast<int>(draw(seed_, 5, group_.size()));
    std::vector<std::byte> data(1234);
    group_.broadcast(root, data);
    expect(Operation::kBroadcast,
           [&](int from, int) { return from == root ? 1234 : 0; });
    group_.barrier();
    expect(Operation::kBarrier, [](int, int) { return 0; });
  }

  void check_sums(Reduction reduction) {
    const std::vector<int64_t> counts =
        counts_of([&](int r) { return count(r, 77); });
    const int64_t wire = reduction == Reduction::kFp32SumOfBf16 ? 2 : 4;
    std::vector<float> input(total(counts));
    std::vector<float> sum(static_cast<size_t>(count(group_.rank(), 77)));
    group_.reduce_scatter_v(reduction, bytes_of(input), counts, bytes_of(sum));
    expect(Operation::kReduceScatter,
           [&](int, int to) { return count(to, 77) * wire; });

    const int64_t n = 3 + draw(seed_, 6, 900);
    std::vector<float> data(static_cast<size_t>(n));
    group_.all_reduce(reduction, bytes_of(data));
    const auto share = [&](int r) {
      return n * (r + 1) / group_.size() - n * r / group_.size();
    };
    expect(Operation::kAllReduce, [&](int from, int to) {
      return share(to) * wire + share(from) * 4;
    });
  }

 private:
  // Sometimes 0.
  int64_t count(int rank, int kind) const {
    const int64_t drawn = draw(seed_ + 31, 64 * rank + kind, 2000);
    return drawn < 400 ? 0 : drawn;
  }
  std::vector<int64_t> counts_of(
      const std::function<int64_t(int rank)>& function) const {
    std::vector<int64_t> counts;
    for (int rank = 0; rank < group_.size(); ++rank)
      counts.push_back(function(rank));
    return counts;
  }
  static size_t total(const std::vector<int64_t>& counts) {
    return static_cast<size_t>(
        std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  }
  void expect(Operation operation,
              const std::function<int64_t(int from, int to)>& bytes) const {
    const SentBytes expected = members_.sent(bytes);
    const TrafficLog::Row& row = group_.traffic().of(operation);
    EXPECT_EQ(row.sent, expected.all) << to_string(operation);
    EXPECT_EQ(row.sent_slow, expected.slow)
        << to_string(operation) << " of " << group_.name() << ", "
        << members_.ranks_per_node << " ranks per node";
  }

  Communicator& group_;
  const Members& members_;
  uint64_t seed_;
};

// Returns the members of `among` that draw the same color as this rank, in
// reverse order.
Members draw_members(const Members& among, uint64_t seed) {
  const auto color = [&](int member) { return draw(seed, member, 2); };
  Members drawn{.ranks_per_node = among.ranks_per_node};
  for (int member = among.size() - 1; member >= 0; --member) {
    if (color(member) != color(among.self)) continue;
    if (member == among.self) drawn.self = drawn.size();
    drawn.world.push_back(among.world[static_cast<size_t>(member)]);
  }
  return drawn;
}

Members everyone(const Communicator& world, int ranks_per_node) {
  Members all{.self = world.rank(), .ranks_per_node = ranks_per_node};
  all.world.resize(static_cast<size_t>(world.size()));
  std::iota(all.world.begin(), all.world.end(), 0);
  return all;
}

void check_groups(Communicator& world, int ranks_per_node, uint64_t seed,
                  Reduction reduction) {
  const Members all = everyone(world, ranks_per_node);
  const Members some = draw_members(all, seed);
  const Members few = draw_members(some, seed + 1);
  const auto group = world.split(static_cast<int>(draw(seed, world.rank(), 2)),
                                 -world.rank(), "group");
  const auto part =
      group->split(static_cast<int>(draw(seed + 1, group->rank(), 2)),
                   -group->rank(), "part");
  for (const auto& [communicator, members] :
       {std::pair(&world, &all), {group.get(), &some}, {part.get(), &few}}) {
    Traffic traffic(*communicator, *members, seed);
    traffic.check_moves();
    traffic.check_sums(reduction);
  }
}

TEST(LinkClasses, EveryOperationOfEveryGroupIsCountedByNode) {
  uint64_t seed = 1;
  for (int num_ranks : kRanks)
    for (int ranks_per_node : kRanksPerNode)
      for (const auto reduction :
           {Reduction::kFp32Sum, Reduction::kFp32SumOfBf16}) {
        seed += 100;
        run_test_ranks(num_ranks,
                       {.segment_bytes = 1000,
                        .check_collectives = seed % 300 == 1,
                        .ranks_per_node = ranks_per_node},
                       [&](Communicator& world) {
                         check_groups(world, ranks_per_node, seed, reduction);
                       });
      }
}

TEST(LinkClasses, NothingIsSlowWhereNodesAreNotKnown) {
  run_test_ranks(4, [](Communicator& world) {
    std::vector<float> data(100);
    world.all_reduce(Reduction::kFp32Sum, bytes_of(data));
    const TrafficLog::Row& row = world.traffic().of(Operation::kAllReduce);
    EXPECT_EQ(row.sent, 600);
    EXPECT_EQ(row.sent_slow, 0);
  });
}

}  // namespace
}  // namespace canzona::comm::link_classes_test
