// Every thread of a rank does what the schedule says, in its order, with the
// same names and bytes. Ranks are threads, or MPI processes (tests/mpi): each
// checks what it recorded itself.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "canzona/base/json_reader.h"
#include "canzona/comm/test_ranks.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/runtime/testing/test_team_plans.h"
#include "canzona/runtime/testing/test_trial.h"
#include "canzona/trace/trace.h"

namespace canzona::runtime::runtime_schedule_test {
namespace {

// A span that corresponds to an entry.
struct Issued {
  std::string name, label, tensors;
  int64_t bytes = -1;
  friend bool operator==(const Issued&, const Issued&) = default;
  friend void PrintTo(const Issued& i, std::ostream* out) {
    *out << i.name << " | " << i.label << " | " << i.tensors << " | "
         << i.bytes;
  }
};
// By thread of the rank, in order.
using Record = std::map<std::string, std::vector<Issued>>;

// The names of all entries; other spans are waits, and spans that enclose
// several entries.
bool is_entry(const std::string& name) {
  static const std::set<std::string> kWords = {
      "all-gather",      "reduce-scatter",  "all-reduce", "all-to-all",
      "broadcast",       "prepare",         "transform",  "apply",
      "update elements", "update matrices", "sum strips", "iterate",
      "multiply strips"};
  return kWords.contains(name);
}

Record record_of(const Trace& trace, int32_t rank) {
  const Json json = parse_json(trace.json(), {});
  std::map<int, std::string> threads;
  Record record;
  for (const Json& event : json.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), rank);
    const int at = event.at("tid");
    if (event.at("name") == "thread_name")
      threads[at] = event.at("args").at("name");
    if (event.at("ph") != "X" || !is_entry(event.at("name"))) continue;
    const Json& args = event.at("args");
    const auto text = [&](const char* key) -> std::string {
      return args.contains(key) ? args.at(key) : "";
    };
    record[threads.at(at)].push_back(
        {event.at("name"), text("label"), text("tensors"),
         args.contains("bytes") ? int64_t{args.at("bytes")} : -1});
  }
  return record;
}

// Runs one step of a plan on ranks with a trace each; `check` gets what a rank
// recorded and how much it sent.
template <class Check>
void run_traced(const Plan& plan, int micro_batches, RuntimeOptions options,
                const Check& check) {
  run_test_ranks(plan.mesh.world(), [&](Communicator& world) {
    Trace trace;
    Trial trial{.plan = plan};
    trial.steps = 1;
    trial.micro_batches = micro_batches;
    trial.options = options;
    trial.options.trace = &trace;
    TrialResult result(plan.mesh.world());
    run_rank_of_trial(trial, world, result);
    const int32_t rank = world.rank();
    check(rank, record_of(trace, rank),
          result.sent[static_cast<size_t>(rank)].total());
  });
}

// What the schedule says about a rank, by thread.
Record expected_of(const Plan& plan, int32_t rank, int micro_batches) {
  const int32_t stage = coordinates_of(plan.mesh, rank).stage;
  std::map<int32_t, Kept> kept;  // by part
  std::map<int32_t, int32_t> rank_in;
  for (const RankInPart& in : parts_of_rank(plan, rank)) {
    const PlanPart& part = plan.parts[static_cast<size_t>(in.part)];
    const Coordinates at = in_grid(part, in.rank);
    kept[in.part] = kept_by(part, at, lay_out_rank(part, at));
    rank_in[in.part] = in.rank;
  }
  Record by_thread;
  for (const ScheduleEntry& e :
       iteration_of(plan, rank, usual_calls(plan, stage, micro_batches))) {
    if (e.kind == EntryKind::kCall) continue;
    const PlanPart& part = plan.parts[static_cast<size_t>(e.part)];
    const std::string issuer(issuer_of(e));
    // explain prints both, in this order.
    const std::string label = label_of(part, e);
    EXPECT_EQ(describe(plan, e),
              cat(word_of(e.kind), label.empty() ? "" : " ", label));
    by_thread[issuer.empty() ? "compute"
                             : cat(part.of_experts ? "experts: " : "", issuer)]
        .push_back({std::string(word_of(e.kind)), label,
                    names_of(part, kept[e.part], e),
                    bytes_of(part, rank_in[e.part], e, kBytesPerFp32)});
  }
  return by_thread;
}

void expect_schedule(const Plan& plan, int micro_batches, Overlap overlap) {
  RuntimeOptions options;
  options.overlap = overlap;
  run_traced(plan, micro_batches, options,
             [&](int32_t rank, const Record& record, int64_t) {
               EXPECT_EQ(record, expected_of(plan, rank, micro_batches))
                   << "rank " << rank << " of " << to_string(plan.mesh) << " "
                   << to_string(plan.options.zero.sizes) << " "
                   << plan.options.strategy;
             });
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

TEST(Schedule, IsWhatThreadsIssueOncePerNode) {
  for (const std::string& strategy : strategy_names())
    for (const char* mesh : {"dp=8", "dp=4,tp=2", "dp=4,ep=2"}) {
      SCOPED_TRACE(cat(mesh, " ", strategy));
      PlanWish wish{.mesh = mesh,
                    .strategy = strategy,
                    .bucket_elements = 700,
                    .ranks_per_node = 4};
      wish.zero_options.reach = Reach::kPerNode;
      const Plan plan =
          small_plan(parse_mesh(mesh).ep > 1 ? toy_moe() : toy_model(), wish);
      ASSERT_EQ(plan.options.zero.reach, Reach::kPerNode);
      expect_schedule(plan, 1, Overlap::kBackground);
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

void expect_counted_bytes(const Plan& plan, DType wire) {
  RuntimeOptions options;
  options.wire = wire;
  run_traced(plan, 2, options,
             [&](int32_t rank, const Record& record, int64_t counted) {
               int64_t sent = 0;
               for (const auto& [thread, issued] : record)
                 if (thread != "compute")
                   for (const Issued& one : issued) sent += one.bytes;
               EXPECT_EQ(sent, counted) << "rank " << rank;
             });
}

// The bytes of spans equal those that transports count, in bf16 too.
TEST(Schedule, SpansHaveTheBytesThatAreSent) {
  for (const DType wire : {DType::kFp32, DType::kBf16})
    for (const std::string& strategy : strategy_names())
      for (const auto& [zero, reach] :
           std::vector<std::pair<std::string, Reach>>{
               {"zero1", Reach::kDirect},
               {"zero1", Reach::kPerNode},
               {"zero3", Reach::kDirect},
               {"zero3", Reach::kPerNode},
               {"replica:2", Reach::kDirect}})
        for (const auto& [mesh, ranks_per_node] :
             {std::pair("dp=4", 2), std::pair("dp=4,tp=2", 4)}) {
          if (strategy != "balanced" && zero != "zero1") continue;
          SCOPED_TRACE(cat(mesh, " ", strategy, " ", zero, " ",
                           to_string(reach), " ", size_of(wire)));
          PlanWish wish{.mesh = mesh,
                        .strategy = strategy,
                        .bucket_elements = 700,
                        .zero = zero,
                        .ranks_per_node = ranks_per_node};
          wish.zero_options.reach = reach;
          expect_counted_bytes(small_plan(toy_model(), wish), wire);
        }
}

}  // namespace
}  // namespace canzona::runtime::runtime_schedule_test
