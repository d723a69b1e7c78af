// make_reports <folder>
//
// Writes the reports that the browser test opens. Plans are made by hand, so
// that the test of the page fails for the page alone.

#include <algorithm>
#include <exception>
#include <functional>
#include <iostream>
#include <string>

#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/storage/test_layouts.h"
#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/report/cluster_view.h"
#include "canzona/report/compare_view.h"
#include "canzona/report/storage_view.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/runs/run_report.h"
#include "canzona/report/runs/test_runs.h"
#include "canzona/report/test_meshes.h"
#include "canzona/report/test_sample.h"

namespace canzona::tests {
namespace {

// This name tries to end a script, to insert an image, to escape from an
// attribute, to reverse the direction of text, and to ring the bell.
constexpr const char* kHostile =
    "</script><img src=x onerror=alert(1)>'\"\xE2\x80\xAE\a--><!--";

void write_reports(const std::string& folder) {
  const auto write = [&](const char* name,
                         const std::vector<ReportPlan>& plans) {
    Comparison all{plans[0].plan.model.name, plans[0].plan.mesh, {}};
    for (const ReportPlan& shown : plans)
      all.strategies.push_back({shown.plan.options.strategy, shown, ""});
    write_file(folder + "/" + name,
               plans.size() > 1 ? compare_html(all) : plan_html(plans[0]));
  };
  write("small.html", {make_sample({})});
  std::vector<ReportPlan> hostile = compare_sample({.first_name = kHostile});
  for (ReportPlan& shown : hostile) {
    shown.plan.model.name = kHostile;
    shown.plan.cost_basis.source = kHostile;
  }
  write("hostile.html", hostile);
  write("large.html",
        compare_sample(
            {.mesh = {.dp = 128, .tp = 8}, .layers = 94, .experts = 128}));
  write("meshed.html",
        {make_sample({.mesh = {.dp = 2, .cp = 2, .tp = 4, .pp = 2, .ep = 4}})});
  write("one_rank.html", {make_sample({.mesh = {}})});
  write("no_matrices.html", {make_sample({.matrices = false})});
}

void write_runs(const std::string& folder) {
  const auto write = [&](const char* name,
                         const std::vector<TrainingRun>& runs) {
    write_file(folder + "/" + name, run_report(compare_runs(runs, 0)));
  };
  const TrainingRun adamw = make_run({.name = "adamw", .floor = 2});
  write("run.html", {make_run({})});
  write("runs.html", {adamw, make_run({})});
  write("hostile_run.html", {make_run({.name = kHostile}), adamw});
}

// Returns a comparison of many sizes, some of them with long names.
ZeroRanking zero_sample(bool experts) {
  ZeroRanking all;
  all.model = "by hand, with a name that is longer than a narrow screen";
  all.mesh = {.dp = 16, .ep = experts ? 8 : 1};
  all.rule = "muon";
  all.options.ranks_per_node = 8;
  all.options.memory_cap_bytes = int64_t{40} << 30;
  all.several_strategies = experts;
  std::vector<RankedMesh>& rows = all.answer.kinds;
  for (const ZeroSizes& sizes : all_zero_sizes(all.mesh.homes())) {
    RankedMesh row{.weighed = {.choice = {.mesh = all.mesh, .dense = sizes}},
                   .strategy = "start_offset"};
    WeighedMesh& weighed = row.weighed;
    if (experts) weighed.choice.experts = {16, 4, 2};
    weighed.memory.parameters = Bytes((int64_t{120} << 30) / sizes.z3);
    weighed.memory.gradients = Bytes((int64_t{60} << 30) / sizes.z2);
    weighed.memory.states = Bytes((int64_t{240} << 30) / sizes.z1);
    weighed.fits = weighed.memory_bytes() <= all.options.memory_cap_bytes;
    if (!weighed.fits) row.verdict = MeshVerdict::kOverCap;
    weighed.fast_bytes = int64_t{sizes.z3} << 30;
    weighed.slow_bytes = int64_t{sizes.z1} << 29;
    weighed.time.seconds = 1.5;
    weighed.time.step_seconds = 0.125;
    row.reason = row.fits() ? "fits" : "over the cap";
    rows.push_back(row);
  }
  std::ranges::stable_sort(rows, {}, &RankedMesh::verdict);
  return all;
}

// Writes a plan of FSDP over 100 ranks, which is more than get a bar each.
void write_storage(const std::string& folder) {
  std::vector<CutTensor> tensors;
  for (const char* name : {"up", "down", kHostile})
    tensors.push_back(
        storage_tensor(name, {400, 64}, stored_by({400, 64}, {{100, 0}})));
  write_file(folder + "/storage.html",
             storage_html(make_storage_plan(storage_request(100, tensors))));
}

void write_cluster(const std::string& folder) {
  Cluster cluster;
  cluster.name = kHostile;
  cluster.card = {"toy card", 1e8};
  cluster.levels = {{"node", 4, 1e6, 1e-5, 1}, {"all", 64, 1e5, 2e-5, 2}};
  Workload work;
  work.compute = {.tokens = 64, .length = 16, .width = 16};
  PlanOptions options;
  apply(cluster, options, work);
  const Plan plan = plan_of(toy_model(4), "pp=4,dp=4", options);
  write_file(folder + "/cluster.html",
             cluster_html({plan, cluster, work, "ring", 1024,
                           predict_cluster(plan, work)}));
}

void write_zero(const std::string& folder) {
  write_file(folder + "/zero.html", zero_comparison_html(zero_sample(false)));
  write_file(folder + "/zero_experts.html",
             zero_comparison_html(zero_sample(true)));
}

void write_meshes(const std::string& folder) {
  write_file(folder + "/mesh.html", mesh_html(SampleMeshes(kHostile).shown()));
}

}  // namespace
}  // namespace canzona::tests

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_reports <folder>\n";
    return 2;
  }
  try {
    canzona::tests::write_reports(argv[1]);
    canzona::tests::write_runs(argv[1]);
    canzona::tests::write_storage(argv[1]);
    canzona::tests::write_zero(argv[1]);
    canzona::tests::write_cluster(argv[1]);
    canzona::tests::write_meshes(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "make_reports: " << error.what() << "\n";
    return 1;
  }
}
