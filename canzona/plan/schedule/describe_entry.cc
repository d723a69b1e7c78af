// Entries of the schedule in words: for people, and as threads are called.
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/names.h"

namespace canzona {
namespace {

const char* word(EntryKind kind) {
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
    case EntryKind::kApply:
      return "apply";
    case EntryKind::kUpdateElements:
      return "update elements";
    case EntryKind::kUpdateMatrices:
      return "update matrices";
  }
  return "";
}

std::string describe_call(const Plan& plan, const TrainerCall& call) {
  switch (call.kind) {
    case TrainerCall::Kind::kWaitParams:
      return cat("the trainer uses ", module_name(plan.model, call.module));
    case TrainerCall::Kind::kReleaseParams:
      return cat("… and is done with ", module_name(plan.model, call.module));
    case TrainerCall::Kind::kGradReady:
      return cat("gradients of ", module_name(plan.model, call.module),
                 " are complete");
    case TrainerCall::Kind::kStep:
      return "step";
  }
  return "";
}

std::string subject(const Plan& plan, const ScheduleEntry& o) {
  const PlanPart& part = plan.parts[index(o.part)];
  if (o.purpose == Purpose::kCheck) return " whether gradients are finite";
  if (o.round >= 0) return cat(" micro-group ", o.round);
  if (o.bucket >= 0) return " " + bucket_name(part, o.bucket);
  return "";
}

}  // namespace

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
    case Purpose::kSum:
    case Purpose::kSumReplicas:
    case Purpose::kPublish:
      break;
  }
  if (entry.group == GroupKind::kExperts) return "experts";
  return entry.group == GroupKind::kPublish ? "publish" : "data";
}

std::string describe(const Plan& plan, const ScheduleEntry& o) {
  if (o.kind == EntryKind::kCall) return describe_call(plan, o.call);
  const std::string& of = plan.parts[index(o.part)].name;
  return cat(word(o.kind), subject(plan, o), of.empty() ? "" : ", ", of);
}

}  // namespace canzona
