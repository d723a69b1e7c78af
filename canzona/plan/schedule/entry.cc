#include "canzona/plan/schedule/entry.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona {

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

std::string name_in(const PlanPart& part, int32_t matrix) {
  return matrix_name(part.model, part.matrices[index(matrix)],
                     part.options.splits);
}

// "layers.3.mlp.down_proj.weight, team (3, 0, 1, 2)" or "…, owner 3, helper 0"
std::string shared_name(const PlanPart& part, const ScheduleEntry& e) {
  std::vector<std::string> team;
  for (const int32_t rank : e.team)
    team.push_back(std::to_string(part.rank_in_whole(rank)));
  const std::string name = name_in(part, e.matrix);
  if (e.has_helper) return cat(name, ", owner ", team[0], ", helper ", team[1]);
  return cat(name, ", team (", join(team, ", "), ")");
}

std::string whole_subject_of(const PlanPart& part, const ScheduleEntry& e) {
  if (e.purpose == Purpose::kCheck) return "largest gradient";
  if (e.shared >= 0) return shared_name(part, e);
  if (e.matrix >= 0) return name_in(part, e.matrix);
  if (e.round >= 0) return cat("micro-group ", e.round);
  if (e.bucket >= 0) return bucket_name(part, e.bucket);
  return "";
}

std::string subject_of(const PlanPart& part, const ScheduleEntry& e) {
  const std::string subject = whole_subject_of(part, e);
  return e.strip < 0 ? subject : cat(subject, ", strip ", e.strip);
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

}  // namespace canzona
