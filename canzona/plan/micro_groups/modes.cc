#include "canzona/plan/micro_groups/modes.h"

#include <algorithm>
#include <map>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/search/owners.h"
#include "canzona/plan/search/teams.h"

namespace canzona::plan {

void assign_rounds_in_order(const Problem& p, std::span<const int32_t> matrices,
                            bool, Assignment& a) {
  int32_t round = 0;
  for (int32_t m : matrices) {
    a.owner[static_cast<size_t>(m)] = round % p.grid.tp;
    a.micro_group[static_cast<size_t>(m)] = round++;
  }
}

void assign_rounds_sorted(const Problem& p, std::span<const int32_t> matrices,
                          bool owners_known, Assignment& a) {
  std::vector<int32_t> order(matrices.begin(), matrices.end());
  std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
    return period_weight_of(p, x) > period_weight_of(p, y);
  });
  assign_rounds_in_order(p, order, owners_known, a);
}

namespace {

// One open micro-group. Items come largest first, so adding an item to the
// current deal equals dealing all of them again.
class OpenGroup {
 public:
  explicit OpenGroup(int32_t tp)
      : weights_(static_cast<size_t>(tp), 0),
        bytes_(static_cast<size_t>(tp), 0) {}

  size_t least_loaded() const {
    return static_cast<size_t>(
        std::min_element(weights_.begin(), weights_.end()) - weights_.begin());
  }
  bool fits(int64_t bytes, int64_t capacity) const {
    return bytes_[least_loaded()] + bytes <= capacity;
  }
  int32_t add(int64_t weight, int64_t bytes) {
    const size_t t = least_loaded();
    weights_[t] += weight;
    bytes_[t] += bytes;
    return static_cast<int32_t>(t);
  }

 private:
  std::vector<int64_t> weights_;
  std::vector<int64_t> bytes_;
};

void check_capacity(const Problem& p, int32_t matrix) {
  const int64_t bytes = exchange_bytes(p, matrix);
  if (bytes <= p.options.capacity_bytes) return;
  const auto m = static_cast<size_t>(matrix);
  throw UsageError(cat(
      "micro-groups capacity: matrix ",
      quoted(matrix_name(p.model, p.matrices[m], p.options.splits)), " needs ",
      human_bytes(bytes), " of TP shard at its owner, above capacity=",
      human_bytes(p.options.capacity_bytes),
      "; raise the capacity or use micro-groups=balanced"));
}

}  // namespace

void assign_capacity(const Problem& p, std::span<const int32_t> matrices,
                     bool owners_known, Assignment& a) {
  if (p.options.capacity_bytes == 0) {
    assign_rounds_sorted(p, matrices, owners_known, a);
    return;
  }
  std::vector<int32_t> order(matrices.begin(), matrices.end());
  std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
    return period_weight_of(p, x) > period_weight_of(p, y);
  });
  OpenGroup group(p.grid.tp);
  int32_t number = 0;
  for (int32_t m : order) {
    check_capacity(p, m);
    const int64_t bytes = exchange_bytes(p, m);
    if (!group.fits(bytes, p.options.capacity_bytes)) {
      group = OpenGroup(p.grid.tp);
      ++number;
    }
    a.owner[static_cast<size_t>(m)] = group.add(period_weight_of(p, m), bytes);
    a.micro_group[static_cast<size_t>(m)] = number;
  }
}

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

// Deals the rounds of one owner: largest first, to the round with room that is
// then least full; the first and last round count as full with half the work. A
// matrix above the capacity is skipped and gets its own round later. Returns
// false if some matrix found no room.
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

// Renumbers rounds without gaps, in order of use.
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

}  // namespace canzona::plan
