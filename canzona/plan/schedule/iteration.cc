#include "canzona/plan/schedule/iteration.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/index.h"
#include "canzona/plan/parts.h"
#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/pools.h"
#include "canzona/plan/schedule/rounds.h"
#include "canzona/plan/schedule/sum_order.h"

namespace canzona {
namespace {

constexpr size_t kSlots = kExchangeSlots;
// Beside the round that is transformed, and the one that is scattered.
constexpr size_t kGathersAhead = kSlots - 2;

std::vector<int64_t> in_bytes(std::vector<int64_t> elements, int64_t size) {
  for (int64_t& count : elements) count *= size;
  return elements;
}

// Slots of one pool, in turn.
class SlotTurns {
 public:
  explicit SlotTurns(int32_t size) : holder_(index(std::max(size, 1)), -1) {}
  bool has_free() const { return holder_[index(next_)] < 0; }
  int32_t take(int32_t operation) {
    const int32_t slot = next_;
    holder_[index(slot)] = operation;
    next_ = (next_ + 1) % static_cast<int32_t>(holder_.size());
    return slot;
  }
  int32_t release(int32_t slot) {
    return std::exchange(holder_[index(slot)], -1);
  }

 private:
  std::vector<int32_t> holder_;  // the operation that took it
  int32_t next_ = 0;
};

// One part of the plan on one rank.
class PartIteration {
 public:
  // `before`: the rank's part before this one, or none.
  PartIteration(const Plan& plan, const RankInPart& at,
                const PartIteration* before, std::vector<ScheduleEntry>& out)
      : part_(plan.parts[index(at.part)]),
        number_(at.part),
        rank_(at.rank),
        at_(coordinates_of(part_.grid, part_.grid_rank(at.rank))),
        layout_(lay_out_rank(part_, at_)),
        kept_(kept_by(part_, at_, layout_)),
        rounds_(make_rounds(
            part_, at_, kept_,
            make_rule_facts(plan.rule, plan.rule_options)->gather_fields())),
        pools_(pool_sizes(part_, at_.stage)),
        parameter_bytes_(bytes_per_parameter(part_.options.parameters)),
        usual_(pools_.gather_slots),
        large_(pools_.large_gather_slots),
        before_(before),
        out_(out) {
    const std::vector<int64_t> elements = module_elements(part_, at_.stage);
    for (int64_t count : elements) is_large_.push_back(count > pools_.slot);
    buckets_of_module_.resize(elements.size());
    for (size_t b = 0; b < layout_.gradients.buckets.size(); ++b) {
      missing_.push_back(count_modules(planned(b)));
      pieces_.emplace_back(part_, planned(b));
      if (planned(b).tensors.empty()) continue;  // a file may hold such
      const int32_t first = planned(b).tensors.front();
      const int32_t m =
          module_of(part_.model, part_.model.tensors[index(first)]);
      buckets_of_module_[index(m)].push_back(b);
    }
    of_matrix_.reserve(kept_.matrices.size());
    for (const KeptMatrix& m : kept_.matrices)
      of_matrix_.push_back(
          index(layout_.parameters
                    .tensors[index(part_.matrices[index(m.matrix)].tensor)]
                    .bucket));
  }

  bool gathers(int32_t module) const {
    return part_.options.zero.sizes.z3 > 1 &&
           !buckets_of_module_[index(module)].empty();
  }

  // Uses of modules that this part gathers, in order, before the first call.
  void begin(std::vector<int32_t> uses) {
    uses_ = std::move(uses);
    gather_ahead();
  }

  void release(int32_t module) {
    if (!gathers(module)) return;
    const SlotUse use = held_[index(next_release_++)];
    SlotTurns& turns = is_large_[index(module)] ? large_ : usual_;
    const int32_t by = turns.release(use.slot);
    out_[index(by)].slot.freed = last();
    gather_ahead();
  }

  // A module's gradients of one micro-batch are complete.
  void grad_ready(int32_t module, int64_t micro_batch, bool is_last) {
    for (size_t b : buckets_of_module_[index(module)])
      if (part_.options.zero.sizes.z2 > 1)
        scatter_module(module, b, micro_batch);
    if (!is_last) return;
    for (size_t b = 0; b < missing_.size(); ++b)
      missing_[b] -= has_module(planned(b), module) ? 1 : 0;
    sum_complete();
  }

  // Buckets of which the trainer announced not everything.
  void finish_gradients() {
    std::ranges::fill(missing_, 0);
    sum_complete();
  }

  void begin_step() {
    unpublished_.assign(layout_.parameters.buckets.size(), 1);
    for (size_t b : of_matrix_) ++unpublished_[b];
    next_publish_ = unpublished_.size();
    num_sent_ = num_applied_ = 0;
    if (rounds_.empty()) {
      compute(EntryKind::kUpdateMatrices);
      for (size_t b : of_matrix_) --unpublished_[b];
      publish_updated();
      return;
    }
    send_until(0);
  }

  void update_elements() {
    compute(EntryKind::kUpdateElements);
    for (int32_t& missing : unpublished_) --missing;
    publish_updated();
  }

  void finish_step() {
    for (size_t k = 0; k < rounds_.size(); ++k) {
      send_until(k + kGathersAhead);
      compute(EntryKind::kTransform, k);
      exchange(Purpose::kScatterMatrices, k, rounds_[k].scatter);
      exchange(Purpose::kScatterMatrices, k, rounds_[k].scatter_uncut);
    }
    apply_until(rounds_.size());
    publish_updated();
  }

 private:
  int32_t last() const { return static_cast<int32_t>(out_.size()) - 1; }
  const Bucket& planned(size_t b) const {
    return part_.buckets[index(layout_.gradients.buckets[b].bucket)];
  }
  bool has_module(const Bucket& bucket, int32_t module) const {
    return std::ranges::any_of(bucket.tensors, [&](int32_t t) {
      const Tensor& tensor = part_.model.tensors[index(t)];
      return !tensor.frozen && module_of(part_.model, tensor) == module;
    });
  }
  int32_t count_modules(const Bucket& bucket) const {
    std::set<int32_t> modules;
    for (int32_t t : bucket.tensors)
      if (!part_.model.tensors[index(t)].frozen)
        modules.insert(module_of(part_.model, part_.model.tensors[index(t)]));
    return static_cast<int32_t>(modules.size());
  }

  const Buffer& buffer_of(size_t b) const {
    return part_.buffers[index(planned(b).buffer)];
  }

  ScheduleEntry& add(EntryKind kind, Purpose purpose) {
    ScheduleEntry& operation = out_.emplace_back();
    operation.kind = kind;
    operation.purpose = purpose;
    operation.part = number_;
    return operation;
  }

  // One collective of a bucket, unless nobody has anything.
  ScheduleEntry* collective(const BucketCollective& c, size_t b) {
    std::vector<int64_t> counts = pieces_[b].counts(c, rank_);
    if (c.pieces != BucketCollective::Pieces::kKept &&
        std::ranges::all_of(counts, [](int64_t n) { return n == 0; }))
      return nullptr;
    ScheduleEntry& entry = add(c.kind, c.purpose);
    entry.group = c.group;
    entry.ranks = ranks_of(part_, c, rank_);
    entry.bucket = layout_.gradients.buckets[b].bucket;
    entry.counts = in_bytes(std::move(counts), element_bytes(part_, c));
    entry.bytes =
        member_bytes(part_, entry.ranks, rank_, entry.kind, entry.counts);
    return &entry;
  }

  void gather_ahead() {
    for (; next_use_ < uses_.size(); ++next_use_) {
      const int32_t module = uses_[next_use_];
      SlotTurns& turns = is_large_[index(module)] ? large_ : usual_;
      if (!turns.has_free()) return;
      const int32_t first = last() + 1;
      for (size_t b : buckets_of_module_[index(module)])
        gather_module(module, b);
      out_[index(first)].slot.slot = turns.take(first);
      held_.push_back(out_[index(first)].slot);
    }
  }

  void gather_module(int32_t module, size_t b) {
    for (const BucketCollective& c : gathers_of(part_, rank_))
      if (ScheduleEntry* entry = collective(c, b)) entry->module = module;
  }

  void scatter_module(int32_t module, size_t b, int64_t micro_batch) {
    for (const BucketCollective& c : scatters_of(part_, rank_)) {
      ScheduleEntry* entry = collective(c, b);
      if (entry == nullptr) continue;
      entry->module = module;
      entry->micro_batch = micro_batch;
    }
  }

  // In the order of buckets, whichever is complete first.
  void sum_complete() {
    for (; next_sum_ < missing_.size() && missing_[next_sum_] == 0; ++next_sum_)
      sum_bucket(next_sum_);
  }

  void sum_bucket(size_t b) {
    for (const BucketCollective& c : sums_of(part_, buffer_of(b)))
      collective(c, b);
  }

  void compute(EntryKind kind) { add(kind, Purpose::kNone); }
  void compute(EntryKind kind, size_t round) {
    add(kind, Purpose::kNone).round = static_cast<int32_t>(round);
  }

  void exchange(Purpose purpose, size_t round, const ExchangeTable& table) {
    if (table.empty) return;
    ScheduleEntry& o = add(EntryKind::kAllToAll, purpose);
    o.group = GroupKind::kExchange;
    o.ranks = group_of(part_, rank_, o.group);
    o.round = static_cast<int32_t>(round);
    o.counts = table.send_bytes;
    o.bytes = exchanged_bytes(o.ranks, table);
  }

  WireBytes exchanged_bytes(const RankGroup& ranks,
                            const ExchangeTable& table) const {
    WireBytes bytes;
    for (int32_t i = 0; i < ranks.count; ++i) {
      if (ranks.rank(i) == rank_) continue;
      const bool near = part_.node_of(ranks.rank(i)) == part_.node_of(rank_);
      (near ? bytes.sent_intra : bytes.sent_inter) +=
          table.send_bytes[index(i)];
      (near ? bytes.received_intra : bytes.received_inter) +=
          table.receive_bytes[index(i)];
    }
    return bytes;
  }

  void send_until(size_t round) {
    for (; num_sent_ < rounds_.size() && num_sent_ <= round; ++num_sent_) {
      if (num_sent_ >= kSlots) apply_until(num_sent_ - kSlots + 1);
      compute(EntryKind::kPrepare, num_sent_);
      taken_.push_back(last());
      out_.back().slot.slot = static_cast<int32_t>(num_sent_ % kSlots);
      exchange(Purpose::kGatherMatrices, num_sent_, rounds_[num_sent_].gather);
      exchange(Purpose::kGatherMatrices, num_sent_,
               rounds_[num_sent_].gather_uncut);
    }
  }

  void apply_until(size_t end) {
    for (; num_applied_ < end; ++num_applied_) {
      compute(EntryKind::kApply, num_applied_);
      out_[index(taken_[num_applied_])].slot.freed = last();
      for (size_t k = 0; k < kept_.matrices.size(); ++k)
        if (part_.micro_group[index(kept_.matrices[k].matrix)] ==
            static_cast<int32_t>(num_applied_))
          --unpublished_[of_matrix_[k]];
      publish_updated();
    }
  }

  // The last bucket first: forward needs it first. When a bucket is complete
  // depends on what a home keeps of it, so that the parts of a plan publish one
  // after the other: ranks that share groups of both would disagree otherwise.
  void publish_updated() {
    if (before_ != nullptr && before_->next_publish_ > 0) return;
    for (; next_publish_ > 0 && unpublished_[next_publish_ - 1] == 0;
         --next_publish_)
      publish_bucket(next_publish_ - 1);
  }

  void publish_bucket(size_t b) {
    for (const BucketCollective& c : publishes_of(part_, buffer_of(b)))
      if (c.kind == EntryKind::kBroadcast)
        broadcast_matrices(c, b);
      else
        collective(c, b);
  }
  void broadcast_matrices(const BucketCollective& c, size_t b) {
    for (int32_t i = 0; i < planned(b).num_matrix_tensors; ++i) {
      const int32_t t = planned(b).tensors[index(i)];
      for (const ExtentCopy& piece : layout_.parameters.pieces[index(t)]) {
        ScheduleEntry& o = add(c.kind, c.purpose);
        o.group = c.group;
        o.ranks = ranks_of(part_, c, rank_);
        o.bucket = layout_.parameters.buckets[b].bucket;
        o.counts.assign(index(o.ranks.count), 0);
        o.counts[index(part_.home[index(t)])] = piece.count * parameter_bytes_;
        o.bytes = member_bytes(part_, o.ranks, rank_, o.kind, o.counts);
      }
    }
  }

  const PlanPart& part_;
  int32_t number_, rank_;
  Coordinates at_;  // in the grid
  RankLayout layout_;
  Kept kept_;
  std::vector<Round> rounds_;
  PoolSizes pools_;
  std::vector<BucketPieces> pieces_;  // by bucket of the rank
  int64_t parameter_bytes_;
  SlotTurns usual_, large_;
  const PartIteration* before_;
  std::vector<ScheduleEntry>& out_;

  std::vector<bool> is_large_;                          // by module
  std::vector<std::vector<size_t>> buckets_of_module_;  // of the rank
  std::vector<int32_t> uses_;  // modules that are gathered
  size_t next_use_ = 0;
  std::vector<SlotUse> held_;  // by use
  int64_t next_release_ = 0;
  std::vector<int32_t> missing_;  // modules, by bucket
  size_t next_sum_ = 0;
  std::vector<size_t> of_matrix_;     // bucket of the rank, by kept matrix
  std::vector<int32_t> unpublished_;  // matrices and elements, by bucket
  size_t next_publish_ = 0;
  size_t num_sent_ = 0, num_applied_ = 0;
  std::vector<int32_t> taken_;  // the operation that took a round's slot
};

class RankIteration {
 public:
  RankIteration(const Plan& plan, int32_t rank,
                std::span<const TrainerCall> calls)
      : plan_(plan), calls_(calls) {
    for (const RankInPart& at : parts_of_rank(plan, rank))
      parts_.emplace_back(plan, at, parts_.empty() ? nullptr : &parts_.back(),
                          out_);
    for (const TrainerCall& call : calls)
      if (call.kind == TrainerCall::Kind::kGradReady)
        ++announcements_[call.module];
  }

  std::vector<ScheduleEntry> all() {
    for (PartIteration& part : parts_) {
      std::vector<int32_t> uses;
      for (const TrainerCall& call : calls_)
        if (call.kind == TrainerCall::Kind::kWaitParams &&
            part.gathers(call.module))
          uses.push_back(call.module);
      part.begin(std::move(uses));
    }
    for (const TrainerCall& call : calls_) {
      ScheduleEntry& point = out_.emplace_back();
      point.call = call;
      point.module = call.module;
      follow(call);
    }
    return std::move(out_);
  }

 private:
  void follow(const TrainerCall& call) {
    switch (call.kind) {
      case TrainerCall::Kind::kWaitParams:
        break;
      case TrainerCall::Kind::kReleaseParams:
        for (PartIteration& part : parts_) part.release(call.module);
        break;
      case TrainerCall::Kind::kGradReady: {
        const int64_t micro_batch = done_[call.module]++;
        const bool is_last = done_[call.module] == announcements_[call.module];
        for (PartIteration& part : parts_)
          part.grad_ready(call.module, micro_batch, is_last);
        break;
      }
      case TrainerCall::Kind::kStep:
        step();
        break;
    }
  }

  // AdamW has work while the first gather is on its way.
  void step() {
    for (PartIteration& part : parts_) part.finish_gradients();
    ScheduleEntry& check = out_.emplace_back();
    check.kind = EntryKind::kAllReduce;
    check.purpose = Purpose::kCheck;
    check.ranks = group_of(plan_.parts.front(), 0, GroupKind::kAll);
    for (PartIteration& part : parts_) part.begin_step();
    for (PartIteration& part : parts_) part.update_elements();
    for (PartIteration& part : parts_) part.finish_step();
  }

  const Plan& plan_;
  std::span<const TrainerCall> calls_;
  std::vector<ScheduleEntry> out_;
  std::deque<PartIteration> parts_;
  std::map<int32_t, int64_t> announcements_, done_;  // by module
};

}  // namespace

std::vector<TrainerCall> usual_calls(const Plan& plan, int32_t stage,
                                     int64_t num_micro_batches) {
  using Kind = TrainerCall::Kind;
  std::set<int32_t> modules;
  for (const Tensor& tensor : plan.model.tensors)
    if (stage_of(plan.mesh, plan.model, tensor) == stage)
      modules.insert(module_of(plan.model, tensor));
  std::vector<TrainerCall> calls;
  // A tied head uses the embedding beside it.
  const int32_t head = num_modules(plan.model) - 1;
  const bool lends = is_tied(plan.model) && modules.contains(0);
  const auto use = [&](int32_t module, bool backward) {
    const bool both = lends && module == head;
    if (both) calls.push_back({Kind::kWaitParams, 0});
    calls.push_back({Kind::kWaitParams, module});
    if (backward) calls.push_back({Kind::kGradReady, module});
    if (both) calls.push_back({Kind::kReleaseParams, 0});
    calls.push_back({Kind::kReleaseParams, module});
  };
  for (int64_t m = 0; m < num_micro_batches; ++m) {
    for (int32_t module : modules) use(module, false);
    for (auto it = modules.rbegin(); it != modules.rend(); ++it) use(*it, true);
  }
  calls.push_back({Kind::kStep, -1});
  return calls;
}

std::vector<ScheduleEntry> iteration_of(const Plan& plan, int32_t rank,
                                        std::span<const TrainerCall> calls) {
  return RankIteration(plan, rank, calls).all();
}

}  // namespace canzona
