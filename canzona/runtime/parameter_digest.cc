#include "canzona/runtime/rank_digest.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/runtime/digest_parts.h"
#include "canzona/runtime/index.h"

namespace canzona {
namespace {

// The parameters of dense tensors (or of experts) on this rank.
LogicalDigest own_parameters(Rank& rank, bool of_experts, bool counted) {
  LogicalDigest digest;
  const int64_t size = rank.store.parameter_bytes();
  for (const RankBucket& bucket : rank.layout.buckets) {
    if (bucket.of_experts != of_experts) continue;
    for (int32_t t : rank.plan.buckets[index(bucket.bucket)].tensors) {
      const Tensor& tensor = rank.tensor(t);
      if (counted && tensor.cut == Cut::kNone && rank.place.t != 0) continue;
      const RankLayout::Place& place = rank.layout.tensors[index(t)];
      std::vector<uint32_t> bits(index(place.count));
      if (size == 4) {
        bits = downloaded<uint32_t>(rank, rank.store.parameter(place.first),
                                    place.count);
      } else {
        const auto halves = downloaded<uint16_t>(
            rank, rank.store.parameter(place.first), place.count);
        std::copy(halves.begin(), halves.end(), bits.begin());
      }
      const uint64_t seed = name_seed(tensor.name);
      for (const LogicalRun& run :
           logical_runs(tensor, rank.plan.grid.tp, rank.place.t))
        digest.add(seed, run.in_tensor,
                   std::span<const uint32_t>(bits).subspan(index(run.in_shard),
                                                           index(run.count)));
    }
  }
  return digest;
}

// Every home must hold the same parameters as the first.
void require_same(Rank& rank, bool of_experts, LogicalDigest mine) {
  std::vector<uint64_t> words(index(2 * rank.plan.grid.world()));
  const std::vector<int64_t> bytes(index(rank.plan.grid.world()),
                                   2 * sizeof(uint64_t));
  rank.groups.control().all_gather_v(
      std::as_bytes(std::span<uint64_t>(mine.words())), bytes,
      std::as_writable_bytes(std::span(words)), {.label = "digests"});
  const RankPlace& me = rank.place;
  const int32_t first_home =
      of_experts ? rank.plan.grid.home_of_expert(0, me.ep) : 0;
  const size_t first =
      index(2 * rank.plan.grid.rank(me.stage, first_home, me.t));
  if (words[first] != mine.words()[0] || words[first + 1] != mine.words()[1])
    throw InternalError(cat("rank ", me.rank, " holds other ",
                            of_experts ? "expert" : "dense",
                            " parameters than rank ", first / 2));
}

}  // namespace

std::string digest_parameters(Rank& rank) {
  LogicalDigest digest;
  for (const bool of_experts : {false, true}) {
    require_same(rank, of_experts, own_parameters(rank, of_experts, false));
    if ((of_experts ? rank.place.expert_home : rank.place.home) != 0) continue;
    const LogicalDigest own = own_parameters(rank, of_experts, true);
    LogicalDigest copy = own;
    digest.words()[0] += copy.words()[0];
    digest.words()[1] += copy.words()[1];
  }
  return sum_of_all(rank, digest);
}

}  // namespace canzona
