#include "canzona/measure/machine_speed.h"

#include <algorithm>

#include "canzona/measure/machine.h"
#include "canzona/measure/rank_runner.h"
#include "canzona/measure/shared_machine.h"
#include "canzona/rules/facts.h"

namespace canzona {
namespace {

void put_rates(const MachineSpeed& speed, SettledRequest& plan) {
  plan.cost_basis = {
      .source = "this machine",
      .seconds_per_tick = 1 / speed.flops_per_second,
      .element_wise_bytes_per_second = speed.copy_bytes_per_second};
  if (plan.options.links.nominal)
    plan.options.links = {speed.copy_bytes_per_second,
                          speed.copy_bytes_per_second,
                          /*latency_seconds=*/0, /*nominal=*/false};
}

}  // namespace

MachineSpeed measure_speed(Communicator& world, Engine& engine,
                           DType precision) {
  return {.flops_per_second = measure_flop_rate(world, engine, precision),
          .copy_bytes_per_second = measure_copy_rate(world),
          .precision = precision};
}

MachineSpeed measure_speed_here(const Plan& plan) {
  const int num_ranks = std::min(plan.mesh.world(), usable_cpus());
  return on_every_rank(on_threads(num_ranks, {}), {}, [&](Communicator& world) {
    return measure_speed(world, *make_cpu_engine(), product_type(plan));
  });
}

DType product_type(const Plan& plan) {
  const RuleOptions options =
      make_rule_facts(plan.rule, plan.rule_options)->options();
  const auto precision = options.find("precision");
  return precision != options.end() && precision->second == "bf16"
             ? DType::kBf16
             : DType::kFp32;
}

bool lacks_cost_table(const Plan& plan) {
  return plan.cost_basis.source == CostBasis{}.source;
}

Plan priced(const Plan& plan, const MachineSpeed& speed) {
  Plan copy = plan;
  if (!lacks_cost_table(plan)) return copy;
  put_rates(speed, copy);
  for (PlanPart& part : copy.parts) put_rates(speed, part);
  return copy;
}

}  // namespace canzona
