#include "canzona/plan/schedule/iteration.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "canzona/base/error.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/entries.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona::plan {
namespace {

// The iteration of one part of the plan on one rank.
class PartIteration {
 public:
  // `before` is the rank's previous part; null if this is the first.
  PartIteration(const Plan& plan, const RankInPart& at,
                const PartIteration* before, std::vector<ScheduleEntry>& out)
      : part_(plan.parts[index(at.part)]),
        number_(at.part),
        at_(in_grid(part_, at.rank)),
        layout_(lay_out_rank(part_, at_)),
        modules_(part_, at_, layout_.parameters),
        kept_(kept_by(part_, at_, layout_)),
        rounds_(make_rounds(
            part_, at_, kept_,
            make_rule_facts(part_.rule, part_.rule_options)->gather_fields())),
        entries_(part_, at.rank, layout_, kept_, rounds_),
        uses_(pool_sizes(part_, at_.stage)),
        before_(before),
        out_(out) {
    missing_.assign(layout_.gradients.buckets.size(), 0);
    for (const std::vector<int32_t>& module : modules_.tensors)
      for (int32_t t : module) ++missing_[bucket_of(t)];
    of_matrix_.reserve(kept_.matrices.size());
    for (const KeptMatrix& m : kept_.matrices)
      of_matrix_.push_back(bucket_of(part_.matrices[index(m.matrix)].tensor));
  }

  bool gathers(int32_t module) const {
    return part_.options.zero.sizes.z3 > 1 &&
           !modules_.buckets[index(module)].empty();
  }

  // Must be called first, with the modules that this part gathers, in order of
  // use.
  void begin(std::span<const int32_t> uses) {
    uses_.begin(uses, modules_.large);
    gather_ahead();
  }

  void release(int32_t module) {
    if (!gathers(module)) return;
    const int64_t use = next_release_++;
    out_[index(taken_by_[index(use)])].slot.freed = last();
    uses_.release(uses_[use].slot);
    gather_ahead();
  }

  // Records that a module's gradients of one micro-batch are complete.
  void grad_ready(int32_t module, int64_t micro_batch, bool is_last) {
    for (int32_t b : modules_.buckets[index(module)])
      for (const ScheduleEntry& entry : entries_.of_bucket(index(b)).scatters) {
        ScheduleEntry& added = add(entry);
        added.module = module;
        added.micro_batch = micro_batch;
      }
    if (!is_last) return;
    for (int32_t t : modules_.tensors[index(module)]) --missing_[bucket_of(t)];
    sum_complete();
  }

  // Sums the buckets whose gradients the trainer has not announced completely.
  void finish_gradients() {
    std::ranges::fill(missing_, 0);
    sum_complete();
  }

  // These add the entries of a step in three parts: up to AdamW's elements,
  // those elements, and the rest.
  void begin_step() {
    unpublished_.assign(layout_.parameters.buckets.size(), 1);
    for (size_t b : of_matrix_) ++unpublished_[b];
    next_publish_ = unpublished_.size();
    next_in_step_ = 0;
    while (entries_.step()[next_in_step_].kind != EntryKind::kUpdateElements)
      step_on();
  }
  void update_elements() { step_on(); }
  void finish_step() {
    while (next_in_step_ < entries_.step().size()) step_on();
    publish_updated();
  }

 private:
  int32_t last() const { return static_cast<int32_t>(out_.size()) - 1; }
  size_t bucket_of(int32_t tensor) const {  // of the rank
    return index(layout_.parameters.tensors[index(tensor)].bucket);
  }

  ScheduleEntry& add(const ScheduleEntry& entry) {
    out_.push_back(entry);
    out_.back().part = number_;
    return out_.back();
  }

  void gather_ahead() {
    while (uses_.post_next()) {
      const ModuleUses::Use& use = uses_[uses_.num_posted() - 1];
      const int32_t first = last() + 1;
      for (int32_t b : modules_.buckets[index(use.module)])
        for (const ScheduleEntry& entry : entries_.of_bucket(index(b)).gathers)
          add(entry).module = use.module;
      out_[index(first)].slot.slot = static_cast<int32_t>(use.slot);
      taken_by_.push_back(first);
    }
  }

  // Sums complete buckets, always in the order of buckets, whichever is
  // complete first.
  void sum_complete() {
    for (; next_sum_ < missing_.size() && missing_[next_sum_] == 0; ++next_sum_)
      for (const ScheduleEntry& entry : entries_.of_bucket(next_sum_).sums)
        add(entry);
  }

  void step_on() {
    const ScheduleEntry& entry = add(entries_.step()[next_in_step_++]);
    const int32_t at = last();
    if (entry.kind == EntryKind::kPrepare) slot_of_round_.push_back(at);
    if (entry.kind == EntryKind::kApply) {
      const size_t round = index(entry.round);
      out_[index(slot_of_round_[round])].slot.freed = at;
      for (int32_t k : rounds_[round].members)
        --unpublished_[of_matrix_[index(k)]];
    }
    if (entry.kind == EntryKind::kUpdateElements)
      for (int32_t& missing : unpublished_) --missing;
    if (entry.kind == EntryKind::kUpdateMatrices)
      for (size_t b : of_matrix_) --unpublished_[b];
    publish_updated();
  }

  // Publishes the last bucket first, because forward needs it first. When a
  // bucket is complete depends on what a home keeps of it, so the parts of a
  // plan publish one after the other; otherwise ranks that share groups of both
  // parts would disagree on the order.
  void publish_updated() {
    if (before_ != nullptr && before_->next_publish_ > 0) return;
    for (; next_publish_ > 0 && unpublished_[next_publish_ - 1] == 0;
         --next_publish_)
      for (const ScheduleEntry& entry :
           entries_.of_bucket(next_publish_ - 1).publishes)
        add(entry);
  }

  const PlanPart& part_;
  int32_t number_;
  Coordinates at_;  // in the grid
  RankLayout layout_;
  ModuleTable modules_;
  Kept kept_;
  std::vector<Round> rounds_;
  RankEntries entries_;
  ModuleUses uses_;
  const PartIteration* before_;
  std::vector<ScheduleEntry>& out_;

  std::vector<int32_t> taken_by_;  // the operation that took a use's slot
  int64_t next_release_ = 0;
  std::vector<int32_t> missing_;  // tensors to be announced, by bucket
  size_t next_sum_ = 0;
  std::vector<size_t> of_matrix_;     // bucket of the rank, by kept matrix
  std::vector<int32_t> unpublished_;  // matrices and elements, by bucket
  size_t next_publish_ = 0;
  size_t next_in_step_ = 0;
  std::vector<int32_t> slot_of_round_;  // the operation that took it
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
    const std::vector<ModuleUse> uses = uses_of(calls_);
    for (PartIteration& part : parts_) {
      std::vector<int32_t> gathered;
      for (const ModuleUse& use : uses)
        if (part.gathers(use.module)) gathered.push_back(use.module);
      part.begin(gathered);
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

  // AdamW runs while the first gather is in transit.
  void step() {
    for (PartIteration& part : parts_) part.finish_gradients();
    ScheduleEntry& check = out_.emplace_back();
    check.kind = EntryKind::kAllReduce;
    check.purpose = Purpose::kCheck;
    check.worked_on = sizeof(int64_t);
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

std::vector<TrainerCall> calls_of(const Model& model, const Mesh& mesh,
                                  int32_t stage,
                                  std::span<const Direction> passes) {
  using Kind = TrainerCall::Kind;
  std::set<int32_t> modules;
  for (const Tensor& tensor : model.tensors)
    if (stage_of(mesh, model, tensor) == stage)
      modules.insert(module_of(model, tensor));
  std::vector<TrainerCall> calls;
  const int32_t head = num_modules(model) - 1;
  const bool has_tied_head = is_tied(model) && modules.contains(0);
  const auto use = [&](int32_t module, bool backward) {
    const bool both = has_tied_head && module == head;
    if (both) calls.push_back({Kind::kWaitParams, 0});
    calls.push_back({Kind::kWaitParams, module});
    if (backward) calls.push_back({Kind::kGradReady, module});
    if (both) calls.push_back({Kind::kReleaseParams, 0});
    calls.push_back({Kind::kReleaseParams, module});
  };
  for (const Direction direction : passes)
    if (direction == Direction::kForward)
      for (const int32_t module : modules) use(module, false);
    else
      for (auto it = modules.rbegin(); it != modules.rend(); ++it)
        use(*it, true);
  calls.push_back({Kind::kStep, -1});
  return calls;
}

std::vector<TrainerCall> usual_calls(const Plan& plan, int32_t stage,
                                     int64_t num_micro_batches) {
  std::vector<Direction> passes;
  for (int64_t m = 0; m < num_micro_batches; ++m)
    passes.insert(passes.end(), {Direction::kForward, Direction::kBackward});
  return calls_of(plan.model, plan.mesh, stage, passes);
}

std::vector<ModuleUse> uses_of(std::span<const TrainerCall> calls) {
  std::vector<ModuleUse> uses;
  size_t first = 0;  // of those that are in use
  for (const TrainerCall& call : calls) switch (call.kind) {
      case TrainerCall::Kind::kWaitParams:
        if (first < uses.size()) uses.back().is_beside = true;
        uses.push_back({.module = call.module});
        break;
      case TrainerCall::Kind::kGradReady:
        for (size_t i = first; i < uses.size(); ++i) uses[i].is_backward = true;
        break;
      case TrainerCall::Kind::kReleaseParams:
        first = uses.size();
        break;
      case TrainerCall::Kind::kStep:
        break;
    }
  std::set<int32_t> complete;
  for (auto use = uses.rbegin(); use != uses.rend(); ++use)
    if (use->completes()) use->is_last = complete.insert(use->module).second;
  return uses;
}

std::vector<ScheduleEntry> iteration_of(const Plan& plan, int32_t rank,
                                        std::span<const TrainerCall> calls) {
  return RankIteration(plan, rank, calls).all();
}

}  // namespace canzona::plan
