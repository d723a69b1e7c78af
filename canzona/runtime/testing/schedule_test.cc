// What every thread of a rank issues is what the schedule says, in its order.
#include <gtest/gtest.h>

#include <map>

#include "canzona/base/json_reader.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/names.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/testing/test_trial.h"
#include "canzona/trace/trace.h"

namespace canzona::runtime_schedule_test {
namespace {

struct Issued {
  std::string name, label;
};
// By rank and thread, in order.
using Record = std::map<std::pair<int, std::string>, std::vector<Issued>>;

Record record_of(const Trace& trace) {
  const Json json = parse_json(trace.json(), {});
  std::map<std::pair<int, int>, std::string> threads;
  Record record;
  for (const Json& event : json.at("traceEvents")) {
    const std::pair<int, int> at{event.at("pid"), event.at("tid")};
    if (event.at("name") == "thread_name")
      threads[at] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    const Json& args = event.at("args");
    record[{at.first, threads.at(at)}].push_back(
        {event.at("name"), args.contains("label") ? args.at("label") : ""});
  }
  return record;
}

const char* name_of(EntryKind kind) {
  switch (kind) {
    case EntryKind::kAllGather:
      return "all_gather_v";
    case EntryKind::kReduceScatter:
      return "reduce_scatter_v";
    case EntryKind::kAllReduce:
      return "all_reduce";
    case EntryKind::kAllToAll:
      return "all_to_all_v";
    case EntryKind::kBroadcast:
      return "broadcast";
    default:
      return "";
  }
}

std::string label_of(const PlanPart& part, const ScheduleEntry& e) {
  if (e.round >= 0) return cat("micro-group ", e.round);
  if (e.module >= 0) return module_name(part.model, e.module);
  return bucket_name(part, e.bucket);
}

// A thread may do all that belongs to a bucket, or to a use of a module, as one
// piece of work; then one span stands for several entries.
bool is_one_piece(const std::string& name) {
  return name == "sum" || name == "publish" || name == "gather" ||
         name == "scatter";
}

// A bucket is summed over all groups that it takes at once.
Purpose work_of(const ScheduleEntry& e) {
  return e.purpose == Purpose::kSumReplicas ? Purpose::kSum : e.purpose;
}

void expect_issued(const Plan& plan, std::span<const ScheduleEntry> expected,
                   const std::vector<Issued>& issued) {
  size_t next = 0;
  for (const Issued& one : issued) {
    ASSERT_LT(next, expected.size()) << one.name << " " << one.label;
    const ScheduleEntry& e = expected[next++];
    const PlanPart& part = plan.parts[static_cast<size_t>(e.part)];
    ASSERT_EQ(one.label, label_of(part, e));
    if (!is_one_piece(one.name)) {
      ASSERT_EQ(one.name, name_of(e.kind));
      continue;
    }
    const auto belongs = [&](const ScheduleEntry& other) {
      return work_of(other) == work_of(e) && other.slot.slot < 0 &&
             other.micro_batch == e.micro_batch &&
             (e.module >= 0 ? other.module == e.module
                            : other.bucket == e.bucket);
    };
    while (next < expected.size() && belongs(expected[next])) ++next;
  }
  EXPECT_EQ(next, expected.size());
}

void expect_schedule(const Plan& plan, int micro_batches, Overlap overlap) {
  Trace trace;
  Trial trial{.plan = plan};
  trial.steps = 1;
  trial.micro_batches = micro_batches;
  trial.options.trace = &trace;
  trial.options.overlap = overlap;
  run_trial(trial);
  const Record record = record_of(trace);
  for (int32_t rank = 0; rank < plan.mesh.world(); ++rank) {
    const int32_t stage = coordinates_of(plan.mesh, rank).stage;
    std::map<std::string, std::vector<ScheduleEntry>> by_thread;
    for (ScheduleEntry& e :
         iteration_of(plan, rank, usual_calls(plan, stage, micro_batches))) {
      if (!is_collective(e.kind) || issuer_of(e).empty()) continue;
      const bool apart = plan.parts[static_cast<size_t>(e.part)].of_experts;
      by_thread[cat(apart ? "experts: " : "", issuer_of(e))].push_back(
          std::move(e));
    }
    for (const auto& [at, issued] : record) {
      if (at.first != rank || at.second == "compute") continue;
      SCOPED_TRACE(cat("rank ", rank, ", ", at.second));
      ASSERT_NO_FATAL_FAILURE(
          expect_issued(plan, by_thread[at.second], issued));
      by_thread.erase(at.second);
    }
    for (const auto& [thread, entries] : by_thread)
      EXPECT_TRUE(entries.empty()) << thread << " has issued nothing";
  }
}

TEST(Schedule, IsWhatThreadsIssue) {
  for (const char* mesh : {"dp=1", "dp=4", "tp=2", "dp=2,tp=2", "dp=2,pp=2"})
    for (const std::string& strategy : strategy_names()) {
      SCOPED_TRACE(cat(mesh, " ", strategy));
      expect_schedule(small_plan(toy_model(), {.mesh = mesh,
                                               .strategy = strategy,
                                               .bucket_elements = 700}),
                      1, Overlap::kBackground);
    }
}

TEST(Schedule, IsWhatThreadsIssueOfSlices) {
  for (const char* zero : {"zero2", "zero3", "hier:2", "replica:2", "z2=2",
                           "z3=2", "z1=2,z2=1,z3=1"})
    for (const char* mesh : {"dp=4", "dp=4,tp=2"})
      for (const Overlap overlap :
           {Overlap::kNone, Overlap::kMain, Overlap::kBackground})
        for (const Reach reach : {Reach::kDirect, Reach::kPerNode}) {
          SCOPED_TRACE(cat(mesh, " ", zero, " ", to_string(overlap)));
          PlanWish wish{.mesh = mesh, .zero = zero, .ranks_per_node = 2};
          wish.zero_options.reach = reach;
          expect_schedule(small_plan(toy_model(), wish), 2, overlap);
        }
}

TEST(Schedule, IsWhatThreadsIssueOfExperts) {
  for (const char* zero : {"zero1", "zero3", "hier:2"})
    for (const char* mesh : {"dp=2,ep=2", "dp=2,ep=2,tp=2"}) {
      SCOPED_TRACE(cat(mesh, " ", zero));
      expect_schedule(small_plan(toy_moe(), {.mesh = mesh, .zero = zero}), 2,
                      Overlap::kBackground);
    }
}

}  // namespace
}  // namespace canzona::runtime_schedule_test
