#include "cli/stated_cluster.h"

#include <fmt/format.h>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/sim/known_gpus.h"

namespace canzona::cli {
namespace {

constexpr double kTera = 1e12;

int32_t usual_node(const PlanArguments& a) {
  const std::string& given = a.planner["ranks-per-node"];
  if (!given.empty())
    return static_cast<int32_t>(
        parse_integer(given, 1, kMaxWorld, "--ranks-per-node"));
  return a.gpu.empty() ? PlanOptions().ranks_per_node
                       : known_gpu(a.gpu).ranks_per_node;
}

// Returns the ranks of a node if `ranks` are on --nodes nodes.
int32_t ranks_on_each(const PlanArguments& a, int32_t ranks,
                      const std::string& where) {
  const auto nodes = static_cast<int32_t>(*a.nodes);
  const bool is_given = !a.planner["ranks-per-node"].empty();
  if (is_given && int64_t{nodes} * usual_node(a) != ranks)
    throw UsageError(
        cat("--nodes ", nodes, " of --ranks-per-node ", usual_node(a), " have ",
            int64_t{nodes} * usual_node(a), " ranks, ", where, " has ", ranks));
  if (ranks % nodes != 0)
    throw UsageError(cat("--nodes ", nodes, ": ", where, " has ", ranks,
                         " ranks, which is not a multiple of it"));
  return ranks / nodes;
}

double given_flops(const PlanArguments& a) {
  return a.tflops ? kTera * *a.tflops : 0;
}

}  // namespace

std::optional<int32_t> stated_ranks(const PlanArguments& a) {
  if (!a.nodes) return std::nullopt;
  const int64_t ranks = *a.nodes * usual_node(a);
  if (ranks > kMaxWorld)
    throw UsageError(cat("--nodes ", *a.nodes, ": ", ranks,
                         " ranks, expected at most ", kMaxWorld));
  return static_cast<int32_t>(ranks);
}

void state_cluster(const PlanArguments& a, int32_t ranks,
                   const std::string& where, PlanOptions& options) {
  options.ranks_per_node =
      a.nodes ? ranks_on_each(a, ranks, where) : usual_node(a);
  if (a.gpu.empty()) return;
  const KnownGpu& gpu = known_gpu(a.gpu);
  const std::string& link = a.planner["link"];
  options.links = usual_links(gpu);
  if (!link.empty()) {
    options.links = parse_links(link, options.links);
    // A latency that was given is that of all links, as without --gpu.
    if (link.find("intra_latency") == std::string::npos &&
        link.find("latency") != std::string::npos)
      options.links.intra_latency_seconds.reset();
  }
  if (a.planner["memory-cap"].empty())
    options.memory_cap_bytes = usual_memory_cap(gpu);
}

void state_rates(const PlanArguments& a, Workload& work) {
  if (!a.gpu.empty()) {
    set_rates(known_gpu(a.gpu), given_flops(a), work);
    return;
  }
  work.compute.flops_per_second =
      a.tflops ? given_flops(a) : kNominalFlopsPerSecond;
  if (a.tflops) work.rates = cat(*a.tflops, " Tflop/s given");
}

double stated_rule_rate(const PlanArguments& a) {
  if (a.gpu.empty()) return kNominalFlopsPerSecond;
  Workload work;
  state_rates(a, work);
  return work.compute.flops_per_second;
}

Cluster named_cluster(const PlanArguments& a, const PlanOptions& options,
                      int32_t ranks) {
  return cluster_of(known_gpu(a.gpu), options, stated_rule_rate(a), ranks);
}

std::string gpus_help() {
  std::string out =
      "GPUs, per rank: memory, peak of dense bf16 products, links inside a "
      "node and between\nnodes, each direction:\n";
  for (const KnownGpu& gpu : known_gpus())
    out += fmt::format(
        "  {:<9} {:>4} GiB {:>6g} Tflop/s {:>5g} GB/s {:>5g} GB/s\n", gpu.name,
        gpu.memory_bytes >> 30, gpu.peak_flops / kTera,
        gpu.intra_bytes_per_second / 1e9, gpu.inter_bytes_per_second / 1e9);
  return out + fmt::format(
                   "Forward and backward are assumed to reach {:g} of the "
                   "peak in products, {:g} in attention\n(docs/clusters.md has "
                   "sources).\n",
                   kProductShare, kAttentionShare);
}

}  // namespace canzona::cli
