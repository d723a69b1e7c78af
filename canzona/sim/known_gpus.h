// GPUs by name: memory, rates, and the node and network that they usually come
// in, from the vendors' pages.
//
//   const KnownGpu& gpu = known_gpu("h200");       // UsageError: did you mean
//   options.links = usual_links(gpu);
//   set_rates(gpu, 0, workload);                   // forward and backward
//
// Nothing here was measured by us. These are plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/options.h"
#include "canzona/sim/cluster.h"

namespace canzona::sim {

struct KnownGpu {
  std::string name;                   // "h200"
  std::string title;                  // "NVIDIA H200 SXM"
  int64_t memory_bytes = 0;           // that its driver reports
  double peak_flops = 0;              // of dense bf16 products, per second
  int32_t ranks_per_node = 8;         // that links inside a node join
  double intra_bytes_per_second = 0;  // per direction
  double inter_bytes_per_second = 0;  // likewise, per rank
  std::string source;
};

const std::vector<KnownGpu>& known_gpus();

// UsageError names `option` and the nearest name.
const KnownGpu& known_gpu(const std::string& name,
                          const char* option = "--gpu");

// Forward and backward are assumed to reach these shares of the peak. They are
// the two rates, rounded down, that fit what AsyncHZP publishes for a dense
// model at 8, 32 and 128 thousand tokens, where attention takes 13 to 72 % of
// the flops (published_test.cc; arXiv 2510.20111, table 4).
inline constexpr double kProductShare = 0.5;
inline constexpr double kAttentionShare = 0.35;

// What a rank leaves to the driver, to libraries of collectives and to
// fragments of memory.
inline constexpr int64_t kReservedBytes = int64_t{4} << 30;

// The cap on memory unless the user gives one.
inline int64_t usual_memory_cap(const KnownGpu& gpu) {
  return gpu.memory_bytes - kReservedBytes;
}

// Links as the vendor states them, with usual latencies.
Links usual_links(const KnownGpu& gpu);

// Sets rates, peak and where they come from. With `given_flops` above 0, that
// is the rate of everything.
void set_rates(const KnownGpu& gpu, double given_flops, Workload& work);

// A cluster of these GPUs for at least `ranks` ranks, with the nodes and links
// of a plan's options.
Cluster cluster_of(const KnownGpu& gpu, const PlanOptions& options,
                   double flops_per_second, int32_t ranks);

}  // namespace canzona::sim
