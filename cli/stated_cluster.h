// What --gpu, --nodes, --ranks-per-node, --link and --tflops say about the
// ranks that something is predicted for. Without --gpu the nominal rates of the
// planner hold.
//
//   state_cluster(arguments, mesh.world(), "--mesh dp=64", options);
//   state_rates(arguments, workload);
//   request.flops_per_second = stated_rule_rate(arguments);
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "canzona/plan/options.h"
#include "canzona/sim/cluster.h"
#include "canzona/sim/workload.h"
#include "cli/plan_arguments.h"

namespace canzona::cli {

// The number of ranks that --nodes makes; nothing without it. Nodes are as
// large as --ranks-per-node says, else as usual for the GPU.
std::optional<int32_t> stated_ranks(const PlanArguments& arguments);

// Sets nodes, links and, unless the user gave one, the memory cap. UsageError
// if --nodes does not make `ranks` ranks; `where` names what does.
void state_cluster(const PlanArguments& arguments, int32_t ranks,
                   const std::string& where, PlanOptions& options);

// Sets the rates of forward and backward, and where they come from.
void state_rates(const PlanArguments& arguments, Workload& work);

// Returns what a rule reaches if no table was measured, per second.
double stated_rule_rate(const PlanArguments& arguments);

// Returns the cluster of --gpu, with the options' nodes and links.
Cluster named_cluster(const PlanArguments& arguments,
                      const PlanOptions& options, int32_t ranks);

// "GPUs:" with a line for each that --gpu knows, for the end of a help page.
std::string gpus_help();

}  // namespace canzona::cli
