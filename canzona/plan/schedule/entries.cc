#include "canzona/plan/schedule/entries.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/step_maker.h"

namespace canzona::plan {

// The names of entries, as reports, traces and threads show them.

namespace {

std::string describe_call(const Plan& plan, const TrainerCall& call) {
  switch (call.kind) {
    case TrainerCall::Kind::kWaitParams:
      return cat("the trainer uses ", module_name(plan.model, call.module));
    case TrainerCall::Kind::kReleaseParams:
      return cat("… and releases ", module_name(plan.model, call.module));
    case TrainerCall::Kind::kGradReady:
      return cat("gradients of ", module_name(plan.model, call.module),
                 " are complete");
    case TrainerCall::Kind::kStep:
      return "step";
  }
  return "";
}

// "layers.3.mlp.down_proj.weight, team (3, 0, 1, 2)" or "…, owner 3, helper 0"
std::string shared_name(const PlanPart& part, const ScheduleEntry& e) {
  std::vector<std::string> team;
  for (const int32_t rank : e.team)
    team.push_back(std::to_string(part.rank_in_whole(rank)));
  const std::string name = matrix_name(
      part.model, part.matrices[index(e.matrix)], part.options.splits);
  if (e.has_helper) return cat(name, ", owner ", team[0], ", helper ", team[1]);
  return cat(name, ", team (", join(team, ", "), ")");
}

std::string subject_of(const PlanPart& part, const ScheduleEntry& e) {
  if (e.purpose == Purpose::kCheck) return "largest gradient";
  if (e.shared >= 0) return shared_name(part, e);
  if (e.round >= 0) return cat("micro-group ", e.round);
  if (e.bucket >= 0) return bucket_name(part, e.bucket);
  return "";
}

bool is_about(const BucketCollective& c, bool is_matrix) {
  return c.tensors == BucketCollective::Tensors::kAll ||
         (c.tensors == BucketCollective::Tensors::kMatrices) == is_matrix;
}

std::vector<int32_t> tensors_of(const PlanPart& part, const Kept& kept,
                                const ScheduleEntry& e) {
  std::vector<int32_t> tensors;
  const auto add = [&](int32_t tensor) {
    if (tensors.empty() || tensors.back() != tensor) tensors.push_back(tensor);
  };
  if (e.matrix >= 0) {
    tensors.push_back(part.matrices[index(e.matrix)].tensor);
  } else if (e.tensor >= 0) {
    tensors.push_back(e.tensor);
  } else if (e.bucket >= 0) {
    const Bucket& bucket = part.buckets[index(e.bucket)];
    for (int32_t i = 0; i < std::ssize(bucket.tensors); ++i)
      if (is_about(e, i < bucket.num_matrix_tensors))
        add(bucket.tensors[index(i)]);
  } else if (e.kind == EntryKind::kUpdateElements) {
    for (const KeptElements& elements : kept.elements) add(elements.tensor);
  } else if (e.round >= 0 || e.kind == EntryKind::kUpdateMatrices) {
    for (const KeptMatrix& m : kept.matrices)
      if (e.round < 0 || part.micro_group[index(m.matrix)] == e.round)
        add(part.matrices[index(m.matrix)].tensor);
  }
  return tensors;
}

}  // namespace

std::string_view word_of(EntryKind kind) {
  switch (kind) {
    case EntryKind::kCall:
      return "call";
    case EntryKind::kAllGather:
      return "all-gather";
    case EntryKind::kReduceScatter:
      return "reduce-scatter";
    case EntryKind::kAllReduce:
      return "all-reduce";
    case EntryKind::kAllToAll:
      return "all-to-all";
    case EntryKind::kBroadcast:
      return "broadcast";
    case EntryKind::kPrepare:
      return "prepare";
    case EntryKind::kTransform:
      return "transform";
    case EntryKind::kLoadStrips:
      return "load strips";
    case EntryKind::kScaleStrips:
      return "scale strips";
    case EntryKind::kSumStrips:
      return "sum strips";
    case EntryKind::kRoundSum:
      return "round sum";
    case EntryKind::kIterate:
      return "iterate";
    case EntryKind::kMultiplyStrips:
      return "multiply strips";
    case EntryKind::kApply:
      return "apply";
    case EntryKind::kUpdateElements:
      return "update elements";
    case EntryKind::kUpdateMatrices:
      return "update matrices";
    case EntryKind::kWait:
      return "wait";
  }
  return "";
}

std::string_view issuer_of(const ScheduleEntry& entry) {
  switch (entry.purpose) {
    case Purpose::kNone:
    case Purpose::kCheck:
      return "";
    case Purpose::kGatherModule:
      return "gather modules";
    case Purpose::kScatterModule:
      return "scatter modules";
    case Purpose::kGatherMatrices:
      return "gather";
    case Purpose::kScatterMatrices:
      return "scatter";
    case Purpose::kTeamNorms:
    case Purpose::kTeamSums:
    case Purpose::kTeamTotals:
    case Purpose::kTeamFactors:
    case Purpose::kTeamPasses:
      return "teams";
    case Purpose::kSum:
    case Purpose::kSumReplicas:
    case Purpose::kPublish:
      break;
  }
  if (entry.group == GroupKind::kExperts) return "experts";
  return entry.group == GroupKind::kPublish ? "publish" : "data";
}

std::string label_of(const PlanPart& part, const ScheduleEntry& e) {
  const std::string subject = subject_of(part, e);
  if (e.purpose == Purpose::kCheck || part.name.empty()) return subject;
  return cat(subject, subject.empty() ? "" : ", ", part.name);
}

std::string describe(const Plan& plan, const ScheduleEntry& e) {
  if (e.kind == EntryKind::kCall) return describe_call(plan, e.call);
  const std::string label = label_of(plan.parts[index(e.part)], e);
  return cat(word_of(e.kind), label.empty() ? "" : " ", label);
}

WireBytes wire_bytes_of(const PlanPart& part, int32_t rank,
                        const ScheduleEntry& e, int64_t gradient_bytes) {
  const bool sums = (e.kind == EntryKind::kReduceScatter ||
                     (e.kind == EntryKind::kAllReduce && !e.counts.empty())) &&
                    e.level != BucketCollective::Level::kAcross;
  if (!sums || gradient_bytes == kBytesPerFp32) return e.bytes;
  std::vector<int64_t> counts = e.counts;
  for (int64_t& count : counts) count = count / kBytesPerFp32 * gradient_bytes;
  WireBytes bytes =
      member_bytes(part, e.ranks, rank, EntryKind::kReduceScatter, counts);
  if (e.kind == EntryKind::kAllReduce)
    bytes += member_bytes(part, e.ranks, rank, EntryKind::kAllGather, e.counts);
  return bytes;
}

int64_t bytes_of(const PlanPart& part, int32_t rank, const ScheduleEntry& e,
                 int64_t gradient_bytes) {
  return is_collective(e.kind) && e.purpose != Purpose::kCheck
             ? wire_bytes_of(part, rank, e, gradient_bytes).sent()
             : e.worked_on;
}

std::string names_of(const PlanPart& part, const Kept& kept,
                     const ScheduleEntry& e) {
  const std::vector<int32_t> tensors = tensors_of(part, kept, e);
  if (tensors.empty()) return "";
  const std::string& first = part.model.tensors[index(tensors.front())].name;
  if (tensors.size() == 1) return first;
  return cat(first, " … ", part.model.tensors[index(tensors.back())].name, " (",
             tensors.size(), " tensors)");
}

namespace {

using Level = BucketCollective::Level;

constexpr int32_t kSlots = kExchangeSlots;
// One slot holds the round that is transformed and one the round that is
// scattered; the others hold gathers.
constexpr int32_t kGathersAhead = kSlots - 2;

std::vector<int64_t> counts_in_bytes(std::vector<int64_t> elements,
                                     int64_t size) {
  for (int64_t& count : elements) count *= size;
  return elements;
}

// Returns how many elements a stage of a team works on at one of its members.
int64_t elements_of(const SharedMatrix& shared, EntryKind kind) {
  const int64_t sum = shared.facts.sum_elements;
  if (kind == EntryKind::kIterate) return sum;
  if (kind == EntryKind::kRoundSum)
    return even_extent(sum, shared.size(), shared.member).count;
  return shared.own.elements();
}

// The step of a rank of our own layouts. AdamW's elements are updated while the
// first round is gathered.
class OwnStep : public StepMaker {
 public:
  OwnStep(const PlanPart& part, int32_t rank, const Kept& kept,
          const std::vector<Round>& rounds)
      : StepMaker({}),
        part_(part),
        rank_(rank),
        kept_(kept),
        rounds_(rounds),
        home_(group_of(part, rank, GroupKind::kExchange)) {}

  std::vector<ScheduleEntry> run() {
    std::vector<int32_t> round_at(rounds_.size());
    std::iota(round_at.begin(), round_at.end(), 0);
    return make(rounds_, round_at);
  }

 private:
  static ScheduleEntry work_on(EntryKind kind, int64_t elements) {
    ScheduleEntry entry;
    entry.kind = kind;
    entry.worked_on = elements * kBytesPerFp32;
    return entry;
  }

  void add_unmoved() override {
    add(work_on(EntryKind::kUpdateElements, kept_.num_elements));
    if (part_.grid.tp == 1)
      add(work_on(EntryKind::kUpdateMatrices, kept_.num_in_matrices));
  }

  ScheduleEntry compute(EntryKind kind, int32_t round,
                        int32_t segment) override {
    int64_t elements = 0;
    if (kind == EntryKind::kTransform) {
      for (const SlotMatrix& matrix : rounds_[index(round)].computed)
        if (matrix.segment == segment) elements += matrix.own.elements();
    } else {
      for (const SlotPiece& piece : rounds_[index(round)].prepared)
        elements += piece.elements();
    }
    ScheduleEntry entry = work_on(kind, elements);
    entry.round = round;
    if (kind == EntryKind::kPrepare) entry.slot.slot = round % kSlots;
    return entry;
  }

  ScheduleEntry exchange(Purpose purpose, int32_t round,
                         const ExchangeTable& table) override {
    ScheduleEntry entry;
    entry.kind = EntryKind::kAllToAll;
    entry.purpose = purpose;
    entry.group = GroupKind::kExchange;
    entry.ranks = home_;
    entry.round = round;
    entry.counts = table.send_bytes;
    entry.bytes = exchanged_bytes(
        table, rank_,
        [&](size_t i) { return home_.rank(static_cast<int32_t>(i)); },
        [&](int32_t of) { return part_.node_of(of); });
    entry.exchange = table;
    return entry;
  }

  void name_team(const SharedMatrix& of, ScheduleEntry& entry) override {
    if (entry.is_compute())
      entry.worked_on = elements_of(of, entry.kind) * kBytesPerFp32;
    for (const int32_t plane : of.members)
      entry.team.push_back(home_.rank(plane));
  }

  int32_t num_planes(int32_t) const override { return part_.grid.tp; }

  const PlanPart& part_;
  const int32_t rank_;
  const Kept& kept_;
  const std::vector<Round>& rounds_;
  const RankGroup home_;
};

}  // namespace

RankEntries::RankEntries(const PlanPart& part, int32_t rank,
                         const RankLayout& layout, const Kept& kept,
                         const std::vector<Round>& rounds)
    : part_(part),
      rank_(rank),
      layout_(layout),
      buckets_(layout.gradients.buckets.size()) {
  for (size_t b = 0; b < buckets_.size(); ++b) add_bucket(b);
  step_ = OwnStep(part, rank, kept, rounds).run();
}

void RankEntries::add_bucket(size_t b) {
  const Bucket& bucket =
      part_.buckets[index(layout_.gradients.buckets[b].bucket)];
  const Buffer& buffer = part_.buffers[index(bucket.buffer)];
  BucketPieces pieces(part_, bucket);
  OfBucket& out = buckets_[b];
  const auto of_module = [&](const BucketCollectives& list,
                             std::vector<ScheduleEntry>& entries,
                             std::vector<int64_t>& all) {
    for (const BucketCollective& c : list) add(c, b, pieces, entries);
    if (list.empty()) return;
    BucketCollective both = list.front();
    both.level = Level::kBoth;
    all =
        counts_in_bytes(pieces.counts(both, rank_), element_bytes(part_, both));
  };
  of_module(gathers_of(part_, rank_), out.gathers, out.gathered);
  of_module(scatters_of(part_, rank_), out.scatters, out.scattered);
  for (const BucketCollective& c : sums_of(part_, buffer, rank_))
    add(c, b, pieces, out.sums);
  for (const BucketCollective& c : publishes_of(part_, buffer, rank_))
    if (c.kind == EntryKind::kBroadcast)
      add_broadcasts(c, b, out.publishes);
    else
      add(c, b, pieces, out.publishes);
}

// Adds one collective of a bucket unless all members' pieces are empty.
void RankEntries::add(const BucketCollective& c, size_t b, BucketPieces& pieces,
                      std::vector<ScheduleEntry>& out) const {
  using Tensors = BucketCollective::Tensors;
  std::vector<int64_t> counts = pieces.counts(c, rank_);
  const bool of_module = c.pieces == BucketCollective::Pieces::kKept;
  if (!of_module && std::ranges::all_of(counts, [](auto n) { return n == 0; }))
    return;
  const bool parameters =
      c.purpose == Purpose::kGatherModule || c.purpose == Purpose::kPublish;
  const RankBucket& laid =
      (parameters ? layout_.parameters : layout_.gradients).buckets[b];
  const Region& region =
      c.tensors == Tensors::kMatrices ? laid.matrices : laid.elements;
  ScheduleEntry& entry = out.emplace_back(ScheduleEntry{c});
  entry.ranks = ranks_of(part_, c, rank_);
  entry.bucket = laid.bucket;
  entry.counts = counts_in_bytes(std::move(counts), element_bytes(part_, c));
  entry.bytes =
      member_bytes(part_, entry.ranks, rank_, entry.kind, entry.counts);
  if (c.level != Level::kBoth && c.pieces == BucketCollective::Pieces::kRuns) {
    BucketCollective both = c;
    both.level = Level::kBoth;
    entry.pieces_of_all =
        counts_in_bytes(pieces.counts(both, rank_), element_bytes(part_, c));
  }
  entry.all = c.tensors == Tensors::kAll ? laid.all : region.all;
  entry.own = c.tensors == Tensors::kAll ? laid.all : region.own;
}

void RankEntries::add_broadcasts(const BucketCollective& c, size_t b,
                                 std::vector<ScheduleEntry>& out) const {
  const int32_t number = layout_.parameters.buckets[b].bucket;
  const Bucket& bucket = part_.buckets[index(number)];
  for (int32_t i = 0; i < bucket.num_matrix_tensors; ++i) {
    const int32_t t = bucket.tensors[index(i)];
    const int32_t root = root_at_level(c, part_.home[index(t)]);
    if (root < 0) continue;
    for (const ExtentCopy& piece : layout_.parameters.pieces[index(t)]) {
      ScheduleEntry& entry = out.emplace_back(ScheduleEntry{c});
      entry.ranks = ranks_of(part_, c, rank_);
      entry.bucket = number;
      entry.tensor = t;
      entry.counts.assign(index(entry.ranks.count), 0);
      entry.counts[index(root)] = piece.count * element_bytes(part_, c);
      entry.bytes =
          member_bytes(part_, entry.ranks, rank_, entry.kind, entry.counts);
      entry.all = piece.target();
    }
  }
}

int32_t RankEntries::root_at_level(const BucketCollective& c,
                                   int32_t home) const {
  if (c.level == Level::kBoth) return home;
  const RankGroup group = group_of(part_, rank_, c.group);
  const int32_t inside = levels_of(part_, group).inside;
  if (c.level == Level::kInside) return home % inside;
  return group.number_of(rank_) % inside == home % inside ? home / inside : -1;
}

std::vector<ExchangeStage> exchange_order(int32_t num_rounds,
                                          int32_t num_slots) {
  std::vector<ExchangeStage> order;
  int32_t num_sent = 0, num_applied = 0;
  const auto apply_until = [&](int32_t end) {
    for (; num_applied < end; ++num_applied)
      order.push_back({EntryKind::kApply, Purpose::kNone, num_applied});
  };
  const auto send_until = [&](int32_t last) {
    for (; num_sent < num_rounds && num_sent <= last; ++num_sent) {
      apply_until(num_sent - num_slots + 1);
      order.push_back({EntryKind::kPrepare, Purpose::kNone, num_sent});
      order.push_back(
          {EntryKind::kAllToAll, Purpose::kGatherMatrices, num_sent});
    }
  };
  send_until(0);
  for (int32_t k = 0; k < num_rounds; ++k) {
    send_until(k + kGathersAhead);
    order.push_back({EntryKind::kTransform, Purpose::kNone, k});
    order.push_back({EntryKind::kAllToAll, Purpose::kScatterMatrices, k});
  }
  apply_until(num_rounds);
  return order;
}

}  // namespace canzona::plan
