#include "canzona/runtime/zero/bucket_tasks.h"

#include <algorithm>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/base/index.h"
#include "canzona/plan/schedule/names.h"

namespace canzona {
namespace {

using CountedPieces = BucketCollective::Pieces;

Courier& courier_of_task(Rank& rank, const RankBucket& bucket, bool sums) {
  return sums ? rank.groups.data(bucket.of_experts)
              : rank.groups.publish(bucket.of_experts);
}

// Shares come by replica, in each by run: where they begin in the runs one
// after another, in bytes.
std::vector<int64_t> offsets_of_shares(const std::vector<int64_t>& shares,
                                       size_t num_runs, int64_t element) {
  std::vector<int64_t> offsets(shares.size());
  int64_t next = 0;
  for (size_t run = 0; run < num_runs; ++run)
    for (size_t i = run; i < shares.size(); i += num_runs) {
      offsets[i] = next;
      next += shares[i] * element;
    }
  return offsets;
}

Operation operation_of(EntryKind kind) {
  switch (kind) {
    case EntryKind::kAllGather:
      return Operation::kAllGather;
    case EntryKind::kReduceScatter:
      return Operation::kReduceScatter;
    case EntryKind::kAllReduce:
      return Operation::kAllReduce;
    case EntryKind::kBroadcast:
      return Operation::kBroadcast;
    default:
      CANZONA_CHECK(false, "no collective of a bucket");
  }
}

}  // namespace

std::vector<int64_t> bytes_of_counts(std::vector<int64_t> counts,
                                     int64_t element) {
  for (int64_t& count : counts) count *= element;
  return counts;
}

Reduction reduction_of(GradientWire wire) {
  return wire == GradientWire::kBf16 ? Reduction::kFp32SumOfBf16
                                     : Reduction::kFp32Sum;
}

BucketTask::BucketTask(Rank& rank, size_t bucket, Resting what)
    : rank_(rank),
      what_(what),
      layout_(what == Resting::kGradients ? rank.layout.gradients
                                          : rank.layout.parameters),
      bucket_(layout_.buckets[bucket]),
      staging_(staging_of(rank.part, layout_, bucket_)),
      element_bytes_(what == Resting::kGradients
                         ? kBytesPerFp32
                         : rank.store.parameter_bytes()),
      flat_(what == Resting::kGradients
                ? reinterpret_cast<std::byte*>(rank.store.gradients())
                : rank.store.parameters()),
      staging_area_(
          what == Resting::kGradients
              ? reinterpret_cast<std::byte*>(rank.store.gradient_staging())
              : rank.store.parameter_staging()),
      courier_(courier_of_task(rank, bucket_, what == Resting::kGradients)),
      name_(what == Resting::kParameters
                ? (layout_.staged ? "publish" : "")
                : (rank.part.grid.places == 1 &&
                           !has_groups(rank.part, GroupKind::kReplicas)
                       ? ""
                       : "sum")),
      label_(rank.label(bucket_name(rank.part, bucket_.bucket))) {
  const Bucket& planned = rank.part.buckets[index(bucket_.bucket)];
  const Buffer& buffer = rank.part.buffers[index(planned.buffer)];
  for (const BucketCollective& c : what == Resting::kGradients
                                       ? sums_of(rank.part, buffer)
                                       : publishes_of(rank.part, buffer))
    if (c.kind == EntryKind::kBroadcast)
      add_broadcasts(c);
    else
      add_step(c, rank.pieces[bucket]);
}

// Nobody is asked for what nobody has.
void BucketTask::add_step(const BucketCollective& c, BucketPieces& pieces) {
  std::vector<int64_t> counts = pieces.counts(c, rank_.world_rank);
  if (std::ranges::all_of(counts, [](int64_t n) { return n == 0; })) return;
  using Tensors = BucketCollective::Tensors;
  const Region& region =
      c.tensors == Tensors::kMatrices ? bucket_.matrices : bucket_.elements;
  const auto all =
      bytes_of(c.tensors == Tensors::kAll ? bucket_.all : region.all);
  const auto own = bytes_of(region.own);
  Step step{c.kind, rank_.groups.of(c.group), own, all, {}, {}};
  if (c.pieces == CountedPieces::kOwnShares) step.output = own;
  if (c.pieces == CountedPieces::kRunShares)
    step.offsets = offsets_of_shares(
        counts, counts.size() / index(rank_.part.num_replicas()),
        element_bytes_);
  if (c.kind == EntryKind::kReduceScatter && step.offsets.empty()) {
    step.input = all;
    step.output = own;
  }
  if (c.kind == EntryKind::kAllGather) {
    counts = bytes_of_counts(std::move(counts), element_bytes_);
    const auto number = step.group.rank();
    if (c.pieces == CountedPieces::kOwnShares)
      step.input = own.subspan(
          index(std::reduce(counts.begin(), counts.begin() + number)),
          index(counts[index(number)]));
  }
  step.counts = std::move(counts);
  steps_.push_back(std::move(step));
}

void BucketTask::add_broadcasts(const BucketCollective& c) {
  const Bucket& planned = rank_.part.buckets[index(bucket_.bucket)];
  for (int32_t i = 0; i < planned.num_matrix_tensors; ++i) {
    const int32_t t = planned.tensors[index(i)];
    for (const ExtentCopy& piece : layout_.pieces[index(t)])
      steps_.push_back({c.kind,
                        rank_.groups.of(c.group),
                        {},
                        bytes_of(piece.target()),
                        {},
                        {},
                        rank_.part.home[index(t)]});
  }
}

void BucketTask::post() {
  const auto body = [this](Communicator&, const Call& call) {
    const Span span(name_.empty() ? nullptr : courier_.track(), name_, label_);
    run(call);
  };
  work_ = courier_.run(name_, body, {.label = label_});
}

// Gradients of all pieces go round and this rank's sums come back; of
// parameters it is the other way about.
void BucketTask::run(const Call& call) const {
  const bool sums = what_ == Resting::kGradients;
  copy_there(rank_.wire_ops(), staging_area_, flat_,
             sums ? staging_.all : staging_.own, element_bytes_);
  for (const Step& step : steps_) {
    const Span span(name_.empty() ? courier_.track() : nullptr,
                    to_string(operation_of(step.kind)), label_);
    carry_out(step, call);
  }
  copy_back(rank_.wire_ops(), flat_, staging_area_,
            sums ? staging_.own : staging_.all, element_bytes_);
}

void BucketTask::carry_out(const Step& s, const Call& call) const {
  const Reduction reduction = reduction_of(rank_.options.wire);
  switch (s.kind) {
    case EntryKind::kAllGather:
      return s.group.all_gather_v(s.input, s.counts, s.output, call);
    case EntryKind::kReduceScatter:
      if (s.offsets.empty())
        return s.group.reduce_scatter_v(reduction, s.input, s.counts, s.output,
                                        call);
      return s.group.reduce_scatter_runs(reduction,
                                         {s.output, s.counts, s.offsets}, call);
    case EntryKind::kBroadcast:
      return s.group.broadcast(s.root, s.output, call);
    default:
      return s.group.all_reduce(reduction, s.output, call);
  }
}

std::span<std::byte> BucketTask::bytes_of(const Extent& extent) const {
  std::byte* base = layout_.staged ? staging_area_ : flat_;
  return {base + extent.first * element_bytes_,
          index(extent.count * element_bytes_)};
}

}  // namespace canzona
