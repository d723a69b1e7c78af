// How long does it take to make a `Runtime`? One for each of 8 ranks, which are
// threads, all at once: layouts, rounds, messages, buffers, groups. Models have
// all their tensors and narrow matrices, so that memory counts less; buckets
// and micro-groups shrink with the matrices and stay as many.
//
//   build/bench/construction [--json]
//
// `slowest`: from a barrier until the last rank's runtime is there; `CPU`: of
// the constructing threads, mean over ranks, which other programs disturb less.
// Each figure is the least of 10 rounds.
#include <algorithm>
#include <numeric>

#include "bench/table.h"
#include "canzona/base/text.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/measure/clock.h"
#include "canzona/plan/make_plan.h"
#include "canzona/runtime/runtime.h"
#include "canzona/shapes/read_model.h"

namespace canzona::bench {
namespace {

constexpr int kRanks = 8;
constexpr int kRounds = 10;

struct ModelCase {
  const char* name;
  int64_t divisor;  // of its widths
};

struct MeshCase {
  const char* mesh;
  const char* zero;
};

Plan plan_for(const ModelCase& model_case, const MeshCase& mesh_case) {
  Model model = read_model(model_case.name, {.divisor = model_case.divisor});
  route(model, {});
  const Mesh mesh = parse_mesh(mesh_case.mesh);
  const auto rule = make_rule_facts("muon", {{"device", "cpu"}});
  PlanOptions options;
  const int64_t smaller = model_case.divisor * model_case.divisor;
  options.bucket_elements = kUsualBucketElements / smaller;
  options.capacity_bytes /= smaller;
  options.zero.sizes = parse_zero(mesh_case.zero, mesh.homes());
  return make_plan({model, mesh, *rule, options});
}

struct Construction {
  double slowest = 1e9;  // seconds
  double cpu = 1e9;      // seconds, mean over ranks
  double reserved = 0;   // bytes, mean over ranks
};

Construction measure(const Plan& plan) {
  Construction best;
  std::vector<double> wall(kRanks), cpu(kRanks), reserved(kRanks);
  run_ranks(kRanks, [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    const auto r = static_cast<size_t>(world.rank());
    for (int round = 0; round < kRounds; ++round) {
      world.barrier({.label = "before construction"});
      const double begin = wall_seconds(), begin_cpu = thread_cpu_seconds();
      const Runtime runtime(plan, world, *engine, {});
      cpu[r] = thread_cpu_seconds() - begin_cpu;
      wall[r] = wall_seconds() - begin;
      reserved[r] = static_cast<double>(runtime.memory().total().value());
      world.barrier({.label = "after construction"});
      if (r > 0) continue;
      const auto mean = [](const std::vector<double>& values) {
        return std::reduce(values.begin(), values.end()) / kRanks;
      };
      best.slowest = std::min(best.slowest, std::ranges::max(wall));
      best.cpu = std::min(best.cpu, mean(cpu));
      best.reserved = mean(reserved);
    }
  });
  return best;
}

size_t num_buckets(const Plan& plan) {
  size_t sum = 0;
  for (const auto& part : plan.parts) sum += part.buckets.size();
  return sum;
}

void run(bool json) {
  Table table("a Runtime on each of 8 ranks",
              {"case", "tensors", "buckets", "MB per rank", "slowest ms",
               "CPU ms per rank"});
  for (const ModelCase& model :
       {ModelCase{"qwen3-0.6b", 32}, ModelCase{"qwen3-30b-a3b", 64}})
    for (const MeshCase& mesh :
         {MeshCase{"dp=8", "zero1"}, MeshCase{"dp=4,tp=2", "zero1"},
          MeshCase{"dp=8", "zero3"}, MeshCase{"dp=8", "hier:2"}}) {
      const Plan plan = plan_for(model, mesh);
      const Construction found = measure(plan);
      table.add(cat(model.name, " 1/", model.divisor, ", ", mesh.mesh, " ",
                    mesh.zero),
                {static_cast<double>(plan.model.tensors.size()),
                 static_cast<double>(num_buckets(plan)), found.reserved / 1e6,
                 found.slowest * 1e3, found.cpu * 1e3});
    }
  table.print(json);
}

}  // namespace
}  // namespace canzona::bench

int main(int argc, char** argv) {
  return canzona::bench::run_program(argc, argv, canzona::bench::run);
}
