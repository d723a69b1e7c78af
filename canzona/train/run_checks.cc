#include "canzona/train/run_checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/runtime/digest/rank_digest.h"

namespace canzona::train {

std::optional<double> spike_over(const std::vector<double>& recent, double loss,
                                 double factor) {
  if (factor == 0 || recent.size() < kLeastRecentLosses) return std::nullopt;
  std::vector<double> sorted = recent;
  std::ranges::sort(sorted);
  const double median = sorted[(sorted.size() - 1) / 2];
  // A factor is meaningless unless the median is positive.
  if (!(median > 0 && loss > factor * median)) return std::nullopt;
  return median;
}

void remember_loss(double loss, std::vector<double>& recent) {
  if (!std::isfinite(loss)) return;
  if (recent.size() >= kMostRecentLosses) recent.erase(recent.begin());
  recent.push_back(loss);
}

namespace {

// A rank's share of some tensors: which elements, and a hash of their
// values. Ranks with equal `which` must have equal values; 0: it keeps none.
struct ReplicaRow {
  uint64_t which = 0;
  uint64_t values[2] = {0, 0};

  void add(const ReplicaRow& other) {
    which = bits_at(which, other.which);
    values[0] += other.values[0];
    values[1] += other.values[1];
  }
  bool has_values_of(const ReplicaRow& other) const {
    return values[0] == other.values[0] && values[1] == other.values[1];
  }
};

// Classes of tensors that are shared by the same ranks: dense or experts, cut
// by tp or not.
constexpr size_t kClasses = 4;
size_t class_of(Runtime& runtime, int32_t t) {
  const Tensor& tensor = runtime.plan().model.tensors[index(t)];
  const bool cut = runtime.shard_elements(t) != tensor.elements();
  return (tensor.expert >= 0 ? 2U : 0U) + (cut ? 1U : 0U);
}

ReplicaRow row_of(Runtime& runtime, int32_t t, std::vector<float>& scratch) {
  if (!runtime.holds(t)) return {};
  const Tensor& tensor = runtime.plan().model.tensors[index(t)];
  const std::vector<Extent> runs = runtime.kept_runs(t);
  const bool cut = runtime.shard_elements(t) != tensor.elements();
  const uint64_t seed = name_seed(tensor.name);
  uint64_t which = bits_at(
      seed, cut ? static_cast<uint64_t>(runtime.coordinates().t) + 1 : 0);
  int64_t count = 0;
  for (const Extent& run : runs) {
    which = bits_at(bits_at(which, static_cast<uint64_t>(run.first)),
                    static_cast<uint64_t>(run.count));
    count += run.count;
  }
  if (count == 0) return {};
  scratch.resize(index(count));
  runtime.get_kept(t, scratch);
  LogicalDigest digest;
  digest.add(seed, 0, std::span<const float>(scratch));
  return {which | 1, {digest.words()[0], digest.words()[1]}};
}

bool any_differs(const std::vector<ReplicaRow>& by_rank) {
  std::map<uint64_t, const ReplicaRow*> first;
  for (const ReplicaRow& row : by_rank) {
    if (row.which == 0) continue;
    const auto [at, is_new] = first.emplace(row.which, &row);
    if (!is_new && !at->second->has_values_of(row)) return true;
  }
  return false;
}

// Returns the ranks that agree with `row`, among those that should.
std::vector<int32_t> agreeing_with(const std::vector<ReplicaRow>& by_rank,
                                   const ReplicaRow& row) {
  std::vector<int32_t> ranks;
  for (int32_t r = 0; r < std::ssize(by_rank); ++r)
    if (by_rank[index(r)].which == row.which &&
        by_rank[index(r)].has_values_of(row))
      ranks.push_back(r);
  return ranks;
}

// Requires some to differ. In a tie, the ranks that come first are taken to be
// right.
Drift drift_of(const std::string& tensor,
               const std::vector<ReplicaRow>& by_rank) {
  for (const ReplicaRow& row : by_rank) {
    if (row.which == 0) continue;
    std::vector<int32_t> most, all;
    for (int32_t r = 0; r < std::ssize(by_rank); ++r) {
      if (by_rank[index(r)].which != row.which) continue;
      all.push_back(r);
      const auto same = agreeing_with(by_rank, by_rank[index(r)]);
      if (same.size() > most.size()) most = same;
    }
    for (const int32_t r : all)
      if (std::ranges::find(most, r) == most.end())
        return {tensor, r, most.front(), std::ssize(most), std::ssize(all)};
  }
  return {};
}

}  // namespace

std::string Drift::text() const {
  const std::string more =
      agreeing > 1 ? cat(" and ", agreeing - 1, " more") : "";
  return cat("rank ", rank, " has different values of ", tensor, " than rank ",
             other, more);
}

std::optional<Drift> find_drift(Runtime& runtime, Communicator& world) {
  runtime.wait_all_params();
  const std::vector<Tensor>& tensors = runtime.plan().model.tensors;
  std::vector<ReplicaRow> own;
  std::vector<float> scratch;
  std::array<ReplicaRow, kClasses> sums;
  for (int32_t t = 0; t < std::ssize(tensors); ++t) {
    own.push_back(row_of(runtime, t, scratch));
    if (own.back().which != 0) sums[class_of(runtime, t)].add(own.back());
  }
  const auto all = one_from_all(world, sums);
  bool differs = false;
  for (size_t c = 0; c < kClasses; ++c) {
    std::vector<ReplicaRow> of_class;
    for (const auto& rank : all) of_class.push_back(rank[c]);
    differs = differs || any_differs(of_class);
  }
  if (!differs) return std::nullopt;
  const auto rows = from_all<ReplicaRow>(world, own);
  for (size_t t = 0; t < tensors.size(); ++t) {
    std::vector<ReplicaRow> of_tensor;
    for (const auto& rank : rows) of_tensor.push_back(rank[t]);
    if (any_differs(of_tensor)) return drift_of(tensors[t].name, of_tensor);
  }
  return std::nullopt;
}

void require_same_device(const std::string& own, Communicator& world) {
  const auto texts = to_first<char>(world, own);
  int64_t other = 0;
  for (size_t r = 1; r < texts.size() && other == 0; ++r)
    if (texts[r] != texts[0]) other = static_cast<int64_t>(r);
  std::string found;
  if (other > 0) {
    const auto text = [&](size_t r) {
      return printable(std::string(texts[r].begin(), texts[r].end()), 300);
    };
    found = cat("rank 0 computes on ", text(0), ", rank ", other, " on ",
                text(static_cast<size_t>(other)));
  }
  other = one_from_all(world, other).front();
  if (other == 0) return;
  throw UsageError(
      cat("the ranks' GPUs, libraries or algorithms differ: ",
          found.empty() ? cat("rank 0 and rank ", other, "; rank 0 names both")
                        : found,
          "; give all ranks the same"));
}

}  // namespace canzona::train
