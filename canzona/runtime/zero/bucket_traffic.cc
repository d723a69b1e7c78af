#include "canzona/runtime/zero/bucket_traffic.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/runtime/step/gradient_check.h"

namespace canzona::runtime {
namespace {

using CountedPieces = BucketCollective::Pieces;

Courier& courier_of_task(Rank& rank, const RankBucket& bucket, bool sums) {
  return sums ? rank.groups.data(bucket.of_experts)
              : rank.groups.publish(bucket.of_experts);
}

// Shares are ordered by replica and, within one, by run. Returns their offsets
// in the concatenated runs, in bytes.
std::vector<int64_t> offsets_of_shares(const std::vector<int64_t>& shares,
                                       size_t num_runs) {
  std::vector<int64_t> offsets(shares.size());
  int64_t next = 0;
  for (size_t run = 0; run < num_runs; ++run)
    for (size_t i = run; i < shares.size(); i += num_runs) {
      offsets[i] = next;
      next += shares[i];
    }
  return offsets;
}

// Returns the offset of a member's piece.
int64_t offset_of(const std::vector<int64_t>& bytes, int member) {
  return std::reduce(bytes.begin(), bytes.begin() + member);
}

// The root is the only member with a nonzero count.
int root_of(const ScheduleEntry& broadcast) {
  return static_cast<int>(std::ranges::max_element(broadcast.counts) -
                          broadcast.counts.begin());
}

}  // namespace

std::vector<int64_t> elements_of(std::vector<int64_t> bytes) {
  for (int64_t& count : bytes) count /= kBytesPerFp32;
  return bytes;
}

Reduction reduction_of(DType wire) {
  return wire == DType::kBf16 ? Reduction::kFp32SumOfBf16 : Reduction::kFp32Sum;
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
      courier_(courier_of_task(rank, bucket_, what == Resting::kGradients)) {
  const RankEntries::OfBucket& entries = rank.entries.of_bucket(bucket);
  for (const ScheduleEntry& entry :
       what == Resting::kGradients ? entries.sums : entries.publishes)
    add_step(entry);
}

void BucketTask::add_step(const ScheduleEntry& e) {
  const auto all = memory_of(e.all), own = memory_of(e.own);
  Step step{rank_.show(e), rank_.groups.of(e.group), own, all, e.counts, {}};
  CANZONA_CHECK(step.group.inside().lane() == courier_.lane(),
                "a bucket's groups on several lanes");
  if (e.kind == EntryKind::kBroadcast) step.root = root_of(e);
  if (is_leg(e)) {
    // Legs leave a sum where its pieces were.
    if (!e.pieces_of_all.empty())
      CANZONA_CHECK(own.data() == all.data() + offset_of(e.pieces_of_all,
                                                         step.group.rank()),
                    "this rank's run is not in its place");
    step.counts = e.kind == EntryKind::kReduceScatter
                      ? elements_of(e.pieces_of_all)
                      : e.pieces_of_all;
    steps_.push_back(std::move(step));
    return;
  }
  if (e.pieces == CountedPieces::kOwnShares) step.output = own;
  if (e.pieces == CountedPieces::kRunShares)
    step.offsets = offsets_of_shares(
        e.counts, e.counts.size() / index(rank_.part.num_replicas()));
  if (e.kind == EntryKind::kReduceScatter) {
    step.counts = elements_of(e.counts);
    if (step.offsets.empty()) {
      step.input = all;
      step.output = own;
    }
  }
  if (e.kind == EntryKind::kAllGather &&
      e.pieces == CountedPieces::kOwnShares) {
    const int number = step.group.rank();
    step.input = own.subspan(index(offset_of(e.counts, number)),
                             index(e.counts[index(number)]));
  }
  steps_.push_back(std::move(step));
}

void BucketTask::post() {
  const Call call = steps_.empty() ? Call{} : steps_.front().shown.call();
  work_ = courier_.run(
      name(), [this](Communicator&, const Call&) { run(); }, call);
}

// For gradients all pieces are sent and this rank's sums are received; for
// parameters it is the other way round.
void BucketTask::run() const {
  const bool sums = what_ == Resting::kGradients;
  // With staging, a span encloses the entries and the copies around them.
  const Span span(layout_.staged ? courier_.track() : nullptr, name());
  copy_there(rank_.ops_of(courier_), staging_area_, flat_,
             sums ? staging_.all : staging_.own, element_bytes_);
  for (const Step& step : steps_) carry_out(step);
  copy_back(rank_.ops_of(courier_), flat_, staging_area_,
            sums ? staging_.own : staging_.all, element_bytes_);
}

void BucketTask::carry_out(const Step& s) const {
  const Span span(courier_.track(), s.shown.span);
  const Call call = s.shown.call();
  const Reduction reduction = reduction_of(rank_.options.wire);
  if (is_leg(*s.shown.entry)) return carry_out_leg(s);
  Communicator& group = s.group.inside();
  switch (s.shown.entry->kind) {
    case EntryKind::kAllGather:
      return group.all_gather_v(s.input, s.counts, s.output, call);
    case EntryKind::kReduceScatter:
      if (s.offsets.empty())
        return group.reduce_scatter_v(reduction, s.input, s.counts, s.output,
                                      call);
      return group.reduce_scatter_runs(reduction,
                                       {s.output, s.counts, s.offsets}, call);
    case EntryKind::kBroadcast:
      return group.broadcast(s.root, s.output, call);
    default:
      return group.all_reduce(reduction, s.output, call);
  }
}

void BucketTask::carry_out_leg(const Step& s) const {
  const ScheduleEntry& e = *s.shown.entry;
  const Call call = s.shown.call();
  const Reduction reduction = reduction_of(rank_.options.wire);
  const bool inside = e.level == BucketCollective::Level::kInside;
  const bool of_all_reduce = e.pieces == CountedPieces::kShares;
  switch (e.kind) {
    case EntryKind::kAllGather:
      if (of_all_reduce)
        return s.group.all_reduce_back(reduction, s.output, call);
      if (inside) return s.group.all_gather_inside(s.counts, s.output, call);
      return s.group.all_gather_across(s.input, s.counts, s.output, call);
    case EntryKind::kReduceScatter:
      if (of_all_reduce)
        return s.group.all_reduce_inside(reduction, s.output, call);
      if (inside)
        return s.group.reduce_scatter_inside(reduction, s.output, s.counts,
                                             call);
      return s.group.reduce_scatter_across(reduction, s.output, s.counts, call);
    case EntryKind::kBroadcast:
      return (inside ? s.group.inside() : s.group.across())
          .broadcast(s.root, s.output, call);
    default:
      return s.group.all_reduce_across(reduction, s.output, call);
  }
}

std::span<std::byte> BucketTask::memory_of(const Extent& extent) const {
  std::byte* base = layout_.staged ? staging_area_ : flat_;
  return {base + extent.first * element_bytes_,
          index(extent.count * element_bytes_)};
}

Reducer::Reducer(Rank& rank)
    : rank_(rank),
      ready_(rank.layout.gradients.tensors.size(), 0),
      memory_(rank.engine.memory()),
      whole_life_(memory_),
      found_(memory_.take_array<int32_t>(1)),
      own_code_(memory_.take_array<int64_t>(1)) {
  const FlatLayout& layout = rank.layout.gradients;
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    Pending& pending = pending_.emplace_back(rank, b);
    pending.tensors =
        rank.part.buckets[index(layout.buckets[b].bucket)].tensors;
    for (int32_t t : pending.tensors) {
      const FlatLayout::Shard& stored = layout.tensors[index(t)];
      const float* first = rank.store.gradients() + stored.first;
      // Unused when only slices are stored.
      const int64_t count = layout.whole ? stored.count : 0;
      pending.gradients.push_back({const_run(first), count});
      pending.num_announced += rank.tensor(t).frozen ? 0 : 1;
    }
  }
  begin();
}

void Reducer::begin() {
  next_ = 0;
  rank_.engine.set_zero(reinterpret_cast<std::byte*>(own_code_),
                        sizeof(*own_code_));
  std::fill(ready_.begin(), ready_.end(), 0);
  for (Pending& bucket : pending_) bucket.num_missing = bucket.num_announced;
}

void Reducer::ready(int32_t tensor) {
  if (ready_[index(tensor)] >= announcements_)
    throw UsageError(cat("grad_ready: the gradient of ",
                         quoted(rank_.tensor(tensor).name),
                         " was announced twice in one iteration"));
  if (++ready_[index(tensor)] < announcements_) return;
  const FlatLayout& layout = rank_.layout.gradients;
  --pending_[index(layout.tensors[index(tensor)].bucket)].num_missing;
  post_full();
}

void Reducer::post_full() {
  for (; next_ < pending_.size() && pending_[next_].num_missing == 0; ++next_) {
    Pending& bucket = pending_[next_];
    if (!by_modules()) {
      look_for_nonfinite(bucket.gradients, bucket.tensors);
      rank_.settle(bucket.courier());
    }
    bucket.post();
  }
  if (rank_.options.overlap == Overlap::kNone && !by_modules()) wait_posted();
}

void Reducer::wait_posted() {
  const WaitWatch watch(rank_, rank_.times.waited_for_gradients);
  for (size_t b = 0; b < next_; ++b) pending_[b].wait();
}

void Reducer::complete(size_t bucket) {
  pending_[bucket].num_missing = 0;
  post_full();
}

void Reducer::finish() {
  for (Pending& bucket : pending_) bucket.num_missing = 0;
  post_full();
  const Span span(rank_.track, "wait for gradients");
  wait_posted();
}

void Reducer::look_for_nonfinite(std::span<const Engine::Stretch> gradients,
                                 std::span<const int32_t> tensors) {
  codes_.clear();
  for (const int32_t tensor : tensors)
    codes_.push_back(rank_.nonfinite_code(tensor, true));
  const auto look = [&] {
    rank_.engine.find_nonfinite(found_, gradients);
    rank_.engine.keep_first_code(own_code_, found_, codes_);
  };
  rank_.engine.repeat(std::cref(look));
}

Publisher::Publisher(Rank& rank)
    : rank_(rank),
      of_module_(index(num_modules(rank.part.model))),
      num_left_(0) {  // nothing to send before the first step
  const FlatLayout& layout = rank.layout.parameters;
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    leaving_.emplace_back(rank, b);
    if (rank.compute != nullptr && !leaving_.back().has_work())
      leaving_.back().updated = rank.compute->make_mark();
    for (int32_t t :
         rank.part.buckets[index(layout.buckets[b].bucket)].tensors) {
      auto& list =
          of_module_[index(module_of(rank.part.model, rank.tensor(t)))];
      const auto number = static_cast<int32_t>(b);
      if (list.empty() || list.back() != number) list.push_back(number);
    }
  }
  for (const KeptMatrix& matrix : rank.kept.matrices) {
    of_matrix_.push_back(layout.tensors[index(rank.tensor_of(matrix))].bucket);
    ++leaving_[index(of_matrix_.back())].num_in;
  }
}

void Publisher::begin() {
  num_left_ = leaving_.size();
  for (Leaving& bucket : leaving_) bucket.num_missing = bucket.num_in;
}

void Publisher::updated(size_t kept_matrix) {
  updated_bucket(leaving_[index(of_matrix_[kept_matrix])]);
}

void Publisher::updated_elements() {
  for (Leaving& bucket : leaving_) updated_bucket(bucket);
}

void Publisher::updated_bucket(Leaving& bucket) {
  --bucket.num_missing;
  if (!held_ || rank_.part.traffic == Traffic::kBroadcast) send_held();
}

void Publisher::send_held() {
  for (; num_left_ > 0; --num_left_) {
    Leaving& bucket = leaving_[num_left_ - 1];
    if (bucket.num_missing > 0) return;
    if (bucket.updated != nullptr) rank_.compute->record(*bucket.updated);
    if (!bucket.has_work()) continue;
    rank_.settle(bucket.courier());
    bucket.post();
  }
}

void Publisher::wait(int32_t module) {
  send_held();
  const WaitWatch watch(rank_, rank_.times.waited_for_parameters);
  const Span span(rank_.compute != nullptr ? rank_.track : nullptr,
                  "wait for parameters", rank_.label_of(module));
  wait_elsewhere(module, rank_.compute.get());
}

void Publisher::wait_elsewhere(int32_t module, Lane* lane) {
  for (int32_t b : of_module_.at(index(module))) {
    Leaving& bucket = leaving_[index(b)];
    bucket.order(lane);
    if (bucket.updated != nullptr) lane->wait_for(*bucket.updated);
  }
}

void Publisher::wait_all() {
  send_held();
  const WaitWatch watch(rank_, rank_.times.waited_for_parameters);
  for (Leaving& bucket : leaving_) bucket.wait();
}

}  // namespace canzona::runtime
