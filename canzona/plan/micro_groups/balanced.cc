#include "canzona/plan/micro_groups/balanced.h"

#include <algorithm>
#include <map>

#include "canzona/plan/micro_groups/single.h"
#include "canzona/plan/search/owners.h"

namespace canzona {
namespace {

using MatrixList = std::vector<int32_t>;

std::vector<MatrixList> by_owner(const Problem& p,
                                 std::span<const int32_t> matrices,
                                 const Assignment& a) {
  std::vector<MatrixList> lists(static_cast<size_t>(p.grid.tp));
  for (int32_t m : matrices) {
    lists[static_cast<size_t>(a.owner[static_cast<size_t>(m)])].push_back(m);
  }
  for (MatrixList& list : lists) {
    std::stable_sort(list.begin(), list.end(), [&](int32_t x, int32_t y) {
      return period_weight_of(p, x) > period_weight_of(p, y);
    });
  }
  return lists;
}

// Rounds of one owner: largest first to the round that has room and that it
// fills least; the first and the last are full with half the work. A matrix
// above the capacity is skipped; it gets its own round later. False if some
// matrix found no room.
bool deal_rounds(const Problem& p, const MatrixList& list, int32_t rounds,
                 Assignment& a) {
  const auto n = static_cast<size_t>(rounds);
  std::vector<int64_t> work(n, 0), bytes(n, 0);
  const auto filled = [&](size_t r, int64_t more) {
    return round_fullness(r, n, work[r], more);
  };
  for (int32_t m : list) {
    const int64_t need = exchange_bytes(p, m);
    const int64_t weight = period_weight_of(p, m);
    if (need > p.options.capacity_bytes) continue;
    size_t best = n;
    for (size_t r = 0; r < n; ++r) {
      if (bytes[r] + need > p.options.capacity_bytes) continue;
      if (best == n || filled(r, weight) < filled(best, weight)) best = r;
    }
    if (best == n) return false;
    work[best] += weight;
    bytes[best] += need;
    a.micro_group[static_cast<size_t>(m)] = static_cast<int32_t>(best);
  }
  return true;
}

int32_t fewest_rounds(const Problem& p, const MatrixList& list) {
  int64_t bytes = 0;
  for (int32_t m : list) {
    const int64_t need = exchange_bytes(p, m);
    if (need <= p.options.capacity_bytes) bytes += need;
  }
  const int64_t full =
      (bytes + p.options.capacity_bytes - 1) / p.options.capacity_bytes;
  return static_cast<int32_t>(std::max(
      full,
      std::min<int64_t>(kPipelineRounds, static_cast<int64_t>(list.size()))));
}

// Rounds are numbered without gaps, in the order in which they are used.
void close_gaps(std::span<const int32_t> matrices, Assignment& a) {
  std::map<int32_t, int32_t> number;
  for (int32_t m : matrices) number[a.micro_group[static_cast<size_t>(m)]] = 0;
  int32_t next = 0;
  for (auto& [round, n] : number) n = next++;
  for (int32_t m : matrices) {
    int32_t& round = a.micro_group[static_cast<size_t>(m)];
    round = number[round];
  }
}

}  // namespace

void assign_balanced_rounds(const Problem& p, std::span<const int32_t> matrices,
                            bool owners_known, Assignment& a) {
  if (!owners_known) deal_owners(p, matrices, a);
  if (p.options.capacity_bytes == 0) {
    for (size_t i = 0; i < matrices.size(); ++i) {
      a.micro_group[static_cast<size_t>(matrices[i])] = static_cast<int32_t>(i);
    }
    return;
  }
  int32_t rounds = 1;
  const std::vector<MatrixList> owners = by_owner(p, matrices, a);
  for (const MatrixList& list : owners) {
    rounds = std::max(rounds, fewest_rounds(p, list));
  }
  for (const MatrixList& list : owners) {
    while (!deal_rounds(p, list, rounds, a)) ++rounds;
  }
  int32_t extra = rounds;
  for (int32_t m : matrices) {
    if (exchange_bytes(p, m) > p.options.capacity_bytes) {
      a.micro_group[static_cast<size_t>(m)] = extra++;
    }
  }
  close_gaps(matrices, a);
}

}  // namespace canzona
