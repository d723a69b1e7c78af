#include "canzona/sim/known_gpus.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::sim {
namespace {

constexpr double kTflops = 1e12;
constexpr double kGbytes = 1e9;
constexpr double kInterLatency = 10e-6;
constexpr double kIntraLatency = 3e-6;

KnownGpu row(const char* name, const char* title, int64_t gibibytes,
             double teraflops, double intra, double inter, const char* source) {
  return {.name = name,
          .title = title,
          .memory_bytes = gibibytes << 30,
          .peak_flops = teraflops * kTflops,
          .intra_bytes_per_second = intra * kGbytes,
          .inter_bytes_per_second = inter * kGbytes,
          .source = source};
}

}  // namespace

// Vendors quote links in both directions together, and products of sparse
// matrices; half of both is what counts here.
const std::vector<KnownGpu>& known_gpus() {
  static const std::vector<KnownGpu> all = {
      row("h100-80", "NVIDIA H100 SXM, 80 GB", 79, 989, 450, 50,
          "H100 datasheet: 1,979 Tflop/s sparse, NVLink 900 GB/s; DGX H100: "
          "400 Gb/s per GPU"),
      row("h200", "NVIDIA H200 SXM, 141 GB", 139, 989, 450, 50,
          "H200 datasheet: 1,979 Tflop/s sparse, NVLink 900 GB/s; DGX H200: "
          "400 Gb/s per GPU"),
      row("h800-80", "NVIDIA H800 SXM, 80 GB", 79, 989, 200, 50,
          "as H100, with NVLink of 400 GB/s; arXiv 2412.19437 has 400 Gb/s per "
          "GPU"),
      row("h20", "NVIDIA H20, 96 GB", 95, 148, 450, 50,
          "H20 datasheet: 148 Tflop/s, NVLink 900 GB/s; 400 Gb/s per GPU is "
          "assumed"),
      row("b200", "NVIDIA B200, 180 GB", 167, 2250, 900, 50,
          "HGX B200: 4.5 Pflop/s sparse, NVLink 1.8 TB/s; DGX B200: 400 Gb/s "
          "per GPU"),
      row("a100-80", "NVIDIA A100 SXM, 80 GB", 79, 312, 300, 25,
          "A100 datasheet: 312 Tflop/s, NVLink 600 GB/s; DGX A100: 200 Gb/s "
          "per GPU"),
      row("a100-40", "NVIDIA A100 SXM, 40 GB", 39, 312, 300, 25,
          "A100 datasheet: 312 Tflop/s, NVLink 600 GB/s; DGX A100: 200 Gb/s "
          "per GPU"),
      row("l40s", "NVIDIA L40S, 48 GB", 44, 362, 32, 12.5,
          "L40S datasheet: 733 Tflop/s sparse, PCIe 4.0 64 GB/s; 100 Gb/s per "
          "GPU is assumed"),
      row("mi300x", "AMD MI300X, 192 GB", 191, 1307, 448, 50,
          "MI300X datasheet: 1,307 Tflop/s, Infinity Fabric 7 × 128 GB/s; 400 "
          "Gb/s per GPU is assumed"),
      row("mi325x", "AMD MI325X, 256 GB", 255, 1307, 448, 50,
          "MI325X datasheet: 1,307 Tflop/s, Infinity Fabric 7 × 128 GB/s; 400 "
          "Gb/s per GPU is assumed")};
  return all;
}

const KnownGpu& known_gpu(const std::string& name, const char* option) {
  std::vector<std::string> names;
  for (const KnownGpu& gpu : known_gpus()) {
    if (gpu.name == name) return gpu;
    names.push_back(gpu.name);
  }
  // "h100" is closest to "h200", but means "h100-80".
  for (const std::string& longer : names)
    if (!name.empty() && longer.starts_with(name + "-"))
      throw UsageError(cat(option, " ", quoted(name), ": expected ",
                           join(names, ", "), did_you_mean(longer, names)));
  throw UsageError(cat(option, " ", quoted(name), ": expected ",
                       join(names, ", "), did_you_mean(name, names)));
}

Links usual_links(const KnownGpu& gpu) {
  return {.intra_bytes_per_second = gpu.intra_bytes_per_second,
          .inter_bytes_per_second = gpu.inter_bytes_per_second,
          .latency_seconds = kInterLatency,
          .nominal = true,
          .intra_latency_seconds = kIntraLatency};
}

void set_rates(const KnownGpu& gpu, double given_flops, Workload& work) {
  work.peak_flops = gpu.peak_flops;
  ComputeLoad& load = work.compute;
  if (given_flops > 0) {
    load.flops_per_second = given_flops;
    work.rates = cat(gpu.name, ": ", given_flops / kTflops,
                     " Tflop/s given, of ", gpu.peak_flops / kTflops);
    return;
  }
  load.flops_per_second = kProductShare * gpu.peak_flops;
  load.attention_flops_per_second = kAttentionShare * gpu.peak_flops;
  work.rates = cat(gpu.name, ": ", gpu.peak_flops / kTflops, " Tflop/s × ",
                   kProductShare, " in products and × ", kAttentionShare,
                   " in attention, stated");
}

Cluster cluster_of(const KnownGpu& gpu, const PlanOptions& options,
                   double flops_per_second, int32_t ranks) {
  const Links& links = options.links;
  const int32_t node = options.ranks_per_node;
  Cluster cluster;
  cluster.name = gpu.name;
  cluster.card = {.name = gpu.title, .flops_per_second = flops_per_second};
  cluster.levels = {{.name = "node",
                     .ranks = node,
                     .bytes_per_second = links.intra_bytes_per_second,
                     .latency_seconds = links.latency(true)},
                    {.name = "between nodes",
                     .ranks = std::max(2, (ranks + node - 1) / node) * node,
                     .bytes_per_second = links.inter_bytes_per_second,
                     .latency_seconds = links.latency(false)}};
  return cluster;
}

}  // namespace canzona::sim
