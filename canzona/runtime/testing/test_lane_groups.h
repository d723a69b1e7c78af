// Collectives between thread ranks on the lanes of any device, for tests: every
// operation is only issued, its inputs are overwritten by work issued right
// after it, and results are compared with a sum that shares no code.
//
//   check_lane_groups([] { return std::make_unique<LateEngine>(device); });
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "canzona/comm/courier.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/linalg/engine.h"
#include "canzona/runtime/engine_lanes.h"

namespace canzona::runtime {

using MakeEngine = std::function<std::unique_ptr<Engine>()>;

// One rank of a group, on its own lane.
class LaneRank {
 public:
  LaneRank(Communicator& world, Engine& engine)
      : engine_(engine),
        memory_(engine),
        compute_(engine),
        lane_(std::make_shared<EngineLane>(engine.make_lane())),
        group_(world.split_ordered(0, world.rank(), "lanes", lane_)),
        courier_(*group_, 4),
        mark_(compute_.make_mark()) {}

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  Communicator& group() { return *group_; }
  Courier& courier() { return courier_; }

  std::span<std::byte> put(const std::vector<float>& values) {
    const Run run = memory_.put(values);
    return {run.data, values.size() * sizeof(float)};
  }
  std::vector<float> get(std::span<const std::byte> data) {
    return memory_.get<float>(data.data(),
                              static_cast<int64_t>(data.size() / 4));
  }
  // Orders the courier's work after what compute has issued, and compute after
  // it.
  void settle() {
    compute_.record(*mark_);
    lane_->wait_for(*mark_);
  }
  void wait(Work work) { work.order(&compute_); }
  // Overwrites memory that no collective may read any more, as compute does.
  void spoil(std::span<std::byte> data) {
    engine_.set_zero(data.data(), static_cast<int64_t>(data.size()));
  }
  // Writes the numbers as late work of compute.
  void write(std::span<std::byte> to, std::span<const std::byte> from) {
    const auto count = static_cast<int64_t>(to.size() / 4);
    engine_.copy(
        matrices(reinterpret_cast<float*>(to.data()), 1, count),
        matrices(reinterpret_cast<const float*>(from.data()), 1, count));
  }

 private:
  Engine& engine_;
  EngineMemory memory_;
  ComputeLane compute_;
  std::shared_ptr<EngineLane> lane_;
  std::unique_ptr<Communicator> group_;
  Courier courier_;
  std::unique_ptr<Mark> mark_;
};

inline std::vector<int64_t> lane_counts(int num_ranks, uint64_t seed) {
  std::vector<int64_t> counts;
  for (int i = 0; i < num_ranks; ++i) {
    const uint64_t bits = bits_at(seed, static_cast<uint64_t>(i));
    counts.push_back(static_cast<int64_t>(bits % 4 == 0 ? 0 : bits / 4 % 97));
  }
  return counts;
}

inline void expect_lane_sum(const std::vector<float>& sum, int64_t first,
                            int num_ranks, bool bf16) {
  for (size_t i = 0; i < sum.size(); ++i)
    ASSERT_TRUE(same_bits(
        sum[i], oracle_at(num_ranks, first + static_cast<int64_t>(i), bf16)))
        << num_ranks << " ranks, element " << i;
}

// A sum, an all-gather of the sums, and the sum again in place.
inline void check_lane_sums(LaneRank& r, uint64_t seed, bool bf16) {
  const std::vector<int64_t> counts = lane_counts(r.size(), seed);
  const int64_t total = std::accumulate(counts.begin(), counts.end(), 0L);
  const auto own = static_cast<size_t>(r.rank());
  const int64_t first =
      std::accumulate(counts.begin(), counts.begin() + r.rank(), 0L);
  const Reduction reduction =
      bf16 ? Reduction::kFp32SumOfBf16 : Reduction::kFp32Sum;
  const auto numbers = r.put(test_piece(r.rank(), total));
  const auto nothing =
      r.put(std::vector<float>(static_cast<size_t>(total), 77));
  const auto input = r.put(r.get(nothing)), all = r.put(r.get(nothing));
  const auto sum =
      r.put(std::vector<float>(static_cast<size_t>(counts[own]), -1));
  std::vector<int64_t> bytes = counts;
  for (int64_t& count : bytes) count *= 4;
  r.write(input, numbers);
  r.settle();
  const Work summed =
      r.courier().reduce_scatter_v(reduction, input, counts, sum);
  r.wait(summed);
  r.spoil(input);
  const Work gathered = r.courier().all_gather_v(sum, bytes, all);
  r.wait(gathered);
  r.spoil(sum);
  expect_lane_sum(r.get(all), 0, r.size(), bf16);
  r.write(input, numbers);
  r.settle();
  r.wait(r.courier().all_reduce(reduction, input));
  expect_lane_sum(r.get(input), 0, r.size(), bf16);
  r.write(input, numbers);
  r.settle();
  const auto place = input.subspan(static_cast<size_t>(first) * 4,
                                   static_cast<size_t>(counts[own]) * 4);
  r.wait(r.courier().reduce_scatter_v(reduction, input, counts, place));
  expect_lane_sum(r.get(place), first, r.size(), bf16);
}

// An all-to-all, then a broadcast.
inline void check_lane_moves(LaneRank& r) {
  const auto n = static_cast<size_t>(r.size());
  const std::vector<int64_t> bytes(n, 12);
  std::vector<int64_t> offsets(n);
  std::vector<float> values;
  for (size_t i = 0; i < n; ++i) {
    offsets[i] = 12 * static_cast<int64_t>(i);
    for (int k = 0; k < 3; ++k)
      values.push_back(static_cast<float>(100 * r.rank() + 3 * i + k));
  }
  const auto numbers = r.put(values);
  const auto send = r.put(std::vector<float>(3 * n));
  const auto receive = r.put(std::vector<float>(3 * n));
  r.write(send, numbers);
  r.settle();
  r.wait(r.courier().all_to_all_v({send, bytes, offsets},
                                  {receive, bytes, offsets}));
  r.spoil(send);
  const std::vector<float> got = r.get(receive);
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < 3; ++k)
      ASSERT_EQ(got[3 * i + k], static_cast<float>(100 * i + 3 * r.rank() + k));
  const auto word = r.put({static_cast<float>(r.rank())});
  r.settle();
  r.wait(r.courier().broadcast(r.size() - 1, word));
  ASSERT_EQ(r.get(word), std::vector<float>{static_cast<float>(r.size() - 1)});
}

inline void check_lane_groups(const MakeEngine& make_engine,
                              bool check_collectives = false) {
  for (const int ranks : {1, 2, 3, 4, 7, 8})
    run_ranks(ranks, {.communicator = {.check_collectives = check_collectives}},
              [&](Communicator& world) {
                const auto engine = make_engine();
                LaneRank rank(world, *engine);
                for (const uint64_t seed : {1, 2, 3})
                  for (const bool bf16 : {false, true})
                    check_lane_sums(rank, seed, bf16);
                check_lane_moves(rank);
                rank.group().barrier();
              });
}

}  // namespace canzona::runtime
