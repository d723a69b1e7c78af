#include "canzona/plan/search/round_deal.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "canzona/base/error.h"

namespace canzona {
namespace {

// The work and bytes of every rank in every round.
class RoundLoads {
 public:
  RoundLoads(int32_t num_ranks, int32_t rounds, int64_t capacity)
      : rounds_(index(rounds)),
        capacity_(capacity),
        work_(index(num_ranks) * rounds_, 0),
        bytes_(work_.size(), 0) {}

  // Returns the round that a job fills least; nullopt if none has room.
  std::optional<size_t> best_round(const RoundJob& job) const {
    std::optional<size_t> best;
    for (size_t r = 0; r < rounds_; ++r)
      if (has_room(job, r) &&
          (!best || fullness(job, r) < fullness(job, *best)))
        best = r;
    return best;
  }

  void add(const RoundJob& job, size_t round) {
    for (const int32_t rank : job.ranks) {
      work_[at(rank, round)] += work_of(job, rank);
      bytes_[at(rank, round)] += job.bytes;
    }
  }

 private:
  size_t at(int32_t rank, size_t round) const {
    return index(rank) * rounds_ + round;
  }
  static int64_t work_of(const RoundJob& job, int32_t rank) {
    return rank == job.ranks.front() ? job.at_head : job.at_member;
  }
  bool has_room(const RoundJob& job, size_t round) const {
    return std::all_of(job.ranks.begin(), job.ranks.end(), [&](int32_t rank) {
      return bytes_[at(rank, round)] + job.bytes <= capacity_;
    });
  }
  std::pair<int64_t, int64_t> fullness(const RoundJob& job,
                                       size_t round) const {
    std::pair<int64_t, int64_t> most{-1, -1};
    for (const int32_t rank : job.ranks)
      most =
          std::max(most, round_fullness(round, rounds_, work_[at(rank, round)],
                                        work_of(job, rank)));
    return most;
  }

  size_t rounds_;
  int64_t capacity_;
  std::vector<int64_t> work_, bytes_;  // [rank · rounds + round]
};

std::vector<size_t> largest_first(std::span<const RoundJob> jobs) {
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return jobs[a].at_head > jobs[b].at_head;
  });
  return order;
}

// Jobs above the capacity come last, each in a round of its own.
std::optional<std::vector<int32_t>> deal_in(std::span<const RoundJob> jobs,
                                            int32_t num_ranks, int32_t rounds,
                                            int64_t capacity) {
  RoundLoads loads(num_ranks, rounds, capacity);
  std::vector<int32_t> out(jobs.size(), 0);
  int32_t extra = rounds;
  for (const size_t j : largest_first(jobs)) {
    if (jobs[j].bytes > capacity) {
      out[j] = extra++;
      continue;
    }
    const std::optional<size_t> best = loads.best_round(jobs[j]);
    if (!best) return std::nullopt;
    loads.add(jobs[j], *best);
    out[j] = static_cast<int32_t>(*best);
  }
  return out;
}

}  // namespace

std::vector<int32_t> deal_team_rounds(std::span<const RoundJob> jobs,
                                      int32_t num_ranks, int32_t rounds,
                                      int64_t capacity) {
  std::optional<std::vector<int32_t>> dealt;
  while (!(dealt = deal_in(jobs, num_ranks, rounds, capacity))) ++rounds;
  std::map<int32_t, int32_t> number;
  for (const int32_t round : *dealt) number[round] = 0;
  int32_t next = 0;
  for (auto& [round, n] : number) n = next++;
  for (int32_t& round : *dealt) round = number[round];
  return *std::move(dealt);
}

}  // namespace canzona
