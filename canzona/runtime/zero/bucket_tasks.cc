#include "canzona/runtime/zero/bucket_tasks.h"

#include "canzona/base/index.h"
#include "canzona/plan/schedule/names.h"

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

BucketTask::BucketTask(Rank& rank, size_t bucket, const Area& area,
                       Courier& courier, std::string_view name)
    : rank_(rank),
      bucket_(area.layout.buckets[bucket]),
      staging_(staging_of(rank.plan, area.layout, bucket_)),
      area_(area),
      courier_(courier),
      name_(name),
      label_(rank.label(bucket_name(rank.plan, bucket_.bucket))) {}

void BucketTask::post() {
  const auto body = [this](Communicator& communicator, const Call& call) {
    const Span span(name_.empty() ? nullptr : courier_.track(), name_, label_);
    run(communicator, call);
  };
  work_ = courier_.run(name_, body, {.label = label_});
}

void BucketTask::pack(const std::vector<ExtentCopy>& copies) const {
  copy_there(rank_.wire_ops(), area_.staging, area_.flat, copies,
             area_.element_bytes);
}

void BucketTask::unpack(const std::vector<ExtentCopy>& copies) const {
  copy_back(rank_.wire_ops(), area_.flat, area_.staging, copies,
            area_.element_bytes);
}

std::span<std::byte> BucketTask::bytes_of(const Extent& extent) const {
  std::byte* base = area_.layout.staged ? area_.staging : area_.flat;
  return {base + extent.first * area_.element_bytes,
          index(extent.count * area_.element_bytes)};
}

Span BucketTask::shown(Operation operation) const {
  return {name_.empty() ? courier_.track() : nullptr, to_string(operation),
          label_};
}

SumBucket::SumBucket(Rank& rank, size_t bucket)
    : BucketTask(
          rank, bucket,
          {rank.layout.gradients,
           reinterpret_cast<std::byte*>(rank.store.gradients()),
           reinterpret_cast<std::byte*>(rank.store.gradient_staging()),
           kBytesPerFp32},
          rank.groups.data(rank.layout.gradients.buckets[bucket].of_experts),
          rank.plan.grid.places == 1 && rank.groups.replicas() == nullptr
              ? ""
              : "sum"),
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

void SumBucket::run(Communicator& communicator, const Call& call) {
  pack(staging_.all);
  if (!is_scattered(rank_.plan.traffic) &&
      rank_.groups.all_groups() == nullptr && bucket_.all.count > 0) {
    const Span span = shown(Operation::kAllReduce);
    communicator.all_reduce(reduction_of(rank_.options.wire),
                            bytes_of(bucket_.all), call);
  }
  sum(communicator, bucket_.matrices, matrices_, call);
  sum(communicator, bucket_.elements, elements_, call);
  unpack(staging_.own);
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
  if (spreads && !everywhere) {
    const Span span = shown(Operation::kReduceScatter);
    communicator.reduce_scatter_v(reduction, bytes_of(region.all),
                                  region.counts, bytes_of(region.own), call);
  }
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
    : BucketTask(rank, bucket,
                 {rank.layout.parameters, rank.store.parameters(),
                  rank.store.parameter_staging(), rank.store.parameter_bytes()},
                 rank.groups.publish(
                     rank.layout.parameters.buckets[bucket].of_experts),
                 rank.layout.parameters.staged ? "publish" : ""),
      matrix_bytes_(bytes_of_counts(bucket_.matrices.counts,
                                    rank.store.parameter_bytes())),
      element_bytes_(bytes_of_counts(bucket_.elements.counts,
                                     rank.store.parameter_bytes())) {}

void PublishBucket::run(Communicator& communicator, const Call& call) {
  pack(staging_.own);
  if (rank_.plan.traffic == Traffic::kBroadcast)
    broadcast_matrices(communicator, call);
  else
    gather(communicator, bucket_.matrices, matrix_bytes_, call);
  gather(communicator, bucket_.elements, element_bytes_, call);
  unpack(staging_.all);
}

void PublishBucket::broadcast_matrices(Communicator& communicator,
                                       const Call& call) {
  const Bucket& planned = rank_.plan.buckets[index(bucket_.bucket)];
  for (int32_t i = 0; i < planned.num_matrix_tensors; ++i) {
    const int32_t t = planned.tensors[index(i)];
    for (const ExtentCopy& p : rank_.layout.parameters.pieces[index(t)]) {
      const Span span = shown(Operation::kBroadcast);
      communicator.broadcast(rank_.plan.home[index(t)], bytes_of(p.target()),
                             call);
    }
  }
}

void PublishBucket::gather(Communicator& communicator, const Region& region,
                           const std::vector<int64_t>& bytes,
                           const Call& call) {
  if (region.all.count == 0) return;
  const Span span = shown(Operation::kAllGather);
  communicator.all_gather_v(bytes_of(region.own), bytes, bytes_of(region.all),
                            call);
}

}  // namespace canzona
