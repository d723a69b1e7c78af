#include "canzona/runtime/zero/bucket_tasks.h"

#include "canzona/base/index.h"

namespace canzona {
std::vector<int64_t> bytes_of_counts(std::vector<int64_t> counts,
                                     int64_t element) {
  for (int64_t& count : counts) count *= element;
  return counts;
}

Reduction reduction_of(GradientWire wire) {
  return wire == GradientWire::kBf16 ? Reduction::kFp32SumOfBf16
                                     : Reduction::kFp32Sum;
}

SumBucket::SumBucket(Rank& rank, size_t bucket)
    : rank_(rank),
      bucket_(rank.layout.gradients.buckets[bucket]),
      staged_(rank, rank.layout.gradients, bucket),
      base_(rank.layout.gradients.staged ? rank.store.gradient_staging()
                                         : rank.store.gradients()),
      matrices_(cut(bucket_.matrices)),
      elements_(cut(bucket_.elements)) {}

SumBucket::Shares SumBucket::cut(const Region& region) const {
  Shares shares;
  Communicator* groups = rank_.groups.all_groups();
  if (groups == nullptr || region.counts.empty()) return shares;
  const int64_t num_replicas = rank_.plan.num_replicas();
  for (int64_t r = 0; r < num_replicas; ++r) {
    int64_t first = 0;
    for (const int64_t count : region.counts) {
      const int64_t begin = count * r / num_replicas;
      shares.counts.push_back(count * (r + 1) / num_replicas - begin);
      shares.offsets.push_back((first + begin) * kBytesPerFp32);
      first += count;
    }
  }
  const size_t num_pieces = region.counts.size();
  for (size_t i = index(groups->rank()) % num_pieces; i < shares.counts.size();
       i += num_pieces)
    shares.own.push_back(shares.counts[i] * kBytesPerFp32);
  return shares;
}

std::span<std::byte> SumBucket::bytes_of(const Extent& extent) const {
  return {reinterpret_cast<std::byte*>(base_ + extent.first),
          index(extent.count * kBytesPerFp32)};
}

void SumBucket::run(Communicator& communicator, const Call& call) {
  const bool staged = rank_.layout.gradients.staged;
  auto* staging = reinterpret_cast<std::byte*>(base_);
  auto* flat = reinterpret_cast<std::byte*>(rank_.store.gradients());
  if (staged) staged_.pack(rank_.wire_ops(), staging, flat, kBytesPerFp32);
  const bool spreads = is_scattered(rank_.plan.traffic);
  if (!spreads && rank_.groups.all_groups() == nullptr)
    communicator.all_reduce(reduction_of(rank_.options.wire),
                            bytes_of(bucket_.all), call);
  sum(communicator, bucket_.matrices, matrices_, call);
  sum(communicator, bucket_.elements, elements_, call);
  if (staged)
    staged_.unpack_own(rank_.wire_ops(), flat, staging, kBytesPerFp32);
}

// An empty region is nobody's; a region without parts has its sum over groups.
void SumBucket::sum(Communicator& communicator, const Region& region,
                    const Shares& shares, const Call& call) {
  if (region.all.count == 0) return;
  const Reduction reduction = reduction_of(rank_.options.wire);
  Communicator* replicas = rank_.groups.replicas();
  Communicator* groups = rank_.groups.all_groups();
  const bool everywhere =
      rank_.plan.options.zero.replica_sum == ReplicaSum::kAllReduce;
  const bool spreads = is_scattered(rank_.plan.traffic);
  if (groups != nullptr && spreads) return sum_at_once(region, shares, call);
  if (spreads && !everywhere)
    communicator.reduce_scatter_v(reduction, bytes_of(region.all),
                                  region.counts, bytes_of(region.own), call);
  if (groups != nullptr) replicas = groups;
  if (replicas == nullptr) return;
  const bool whole = everywhere || !spreads;
  replicas->all_reduce(reduction, bytes_of(whole ? region.all : region.own),
                       call);
}

void SumBucket::sum_at_once(const Region& region, const Shares& shares,
                            const Call& call) {
  Communicator& groups = *rank_.groups.all_groups();
  const std::span<std::byte> all = bytes_of(region.all);
  groups.reduce_scatter_runs(reduction_of(rank_.options.wire),
                             {all, shares.counts, shares.offsets}, call);
  const size_t own = index(groups.rank());
  rank_.groups.replicas()->all_gather_v(
      all.subspan(index(shares.offsets[own]),
                  index(shares.counts[own] * kBytesPerFp32)),
      shares.own, bytes_of(region.own), call);
}

PublishBucket::PublishBucket(Rank& rank, size_t bucket)
    : rank_(rank),
      bucket_(rank.layout.parameters.buckets[bucket]),
      staged_(rank, rank.layout.parameters, bucket),
      matrix_bytes_(bytes_of_counts(bucket_.matrices.counts,
                                    rank.store.parameter_bytes())),
      element_bytes_(bytes_of_counts(bucket_.elements.counts,
                                     rank.store.parameter_bytes())) {}

void PublishBucket::run(Communicator& communicator, const Call& call) {
  const int64_t bytes = rank_.store.parameter_bytes();
  std::byte* staging = rank_.store.parameter_staging();
  staged_.pack_own(rank_.wire_ops(), staging, rank_.store.parameters(), bytes);
  gather(communicator, bucket_.matrices, matrix_bytes_, call);
  gather(communicator, bucket_.elements, element_bytes_, call);
  staged_.unpack(rank_.wire_ops(), rank_.store.parameters(), staging, bytes);
}

void PublishBucket::gather(Communicator& communicator, const Region& region,
                           const std::vector<int64_t>& bytes,
                           const Call& call) {
  if (region.all.count == 0) return;
  const int64_t size = rank_.store.parameter_bytes();
  const auto span = [&](const Extent& extent) {
    return std::span<std::byte>(
        rank_.store.parameter_staging() + extent.first * size,
        index(extent.count * size));
  };
  communicator.all_gather_v(span(region.own), bytes, span(region.all), call);
}

}  // namespace canzona
