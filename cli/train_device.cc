#include "cli/train_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/measure/rank_runner.h"

namespace canzona::cli {
namespace {

constexpr int kOldestGeneration = 8;  // the first whose products are in bf16

double peak_flops_of(const std::string& name) {
  constexpr std::pair<const char*, double> kPeaks[] = {
      {"H100 PCIe", 756e12}, {"H100 NVL", 835e12}, {"H100", 989e12},
      {"H200", 989e12},      {"GH200", 989e12},    {"A100", 312e12},
      {"B200", 2250e12}};
  for (const auto& [part, flops] : kPeaks)
    if (name.find(part) != std::string::npos) return flops;
  return 0;
}

// NCCL does not say beforehand; it took 0.4 GiB for each of 8 ranks.
constexpr int64_t kNcclBytes = int64_t{512} << 20;

CudaDeviceInfo required_gpu(const std::string& device) {
  std::string why_not;
  const auto gpu = find_cuda_device(&why_not);
  if (!gpu) throw UsageError(cat("--device ", device, ": ", why_not));
  if (gpu->major < kOldestGeneration)
    throw UsageError(cat("--device ", device, ": expected a GPU of compute ",
                         "capability 8.0 or newer, found ", gpu->name, " with ",
                         gpu->major, ".", gpu->minor));
  return *gpu;
}

int64_t plan_bytes(const TrainJob& job) {
  int64_t most = 0;
  for (const RankCost& rank : job.ranks)
    most = std::max(most, rank.memory.total().value());
  return most;
}

// Returns the most sequences at once that fit; 0: not even one does.
int64_t most_at_once(const TrainDevice& gpu, const TrainJob& job,
                     Recompute recompute) {
  TrainSettings settings = job.settings;
  settings.decoder.recompute = recompute;
  const int64_t here = settings.global_batch / job.plan.mesh.homes();
  for (int64_t count = here; count > 0; --count) {
    if (here % count != 0) continue;
    settings.decoder.micro_batch = count;
    try {
      if (plan_bytes(job) + training_memory(settings, job.plan) <=
          gpu.bytes_per_rank())
        return count;
    } catch (const UsageError&) {
      if (count == 1) throw;  // else too many for the decoder to count
    }
  }
  return 0;
}

// "; batch.micro=4 would fit"
std::string what_fits(const TrainDevice& gpu, const TrainJob& job) {
  constexpr std::pair<Recompute, const char*> kKinds[] = {
      {Recompute::kOff, "off"},
      {Recompute::kMlp, "mlp"},
      {Recompute::kLayer, "layer"}};
  for (const auto& [recompute, word] : kKinds) {
    if (recompute < job.settings.decoder.recompute) continue;
    const int64_t count = most_at_once(gpu, job, recompute);
    if (count == 0) continue;
    return cat("; batch.micro=", count,
               recompute == job.settings.decoder.recompute
                   ? ""
                   : cat(" with model.recompute=", word),
               " would fit");
  }
  return "; larger sizes of --zero over more GPUs need less on each";
}

}  // namespace

std::optional<TrainDevice> find_train_device(const TrainConfig& config,
                                             const Mesh& mesh, Ranks* ranks) {
  if (!device_kind(config.device).has_own_memory) return {};
  TrainDevice out;
  out.ranks = mesh.world();
  out.cap_bytes = planner_options_of(config, mesh).memory_cap_bytes;
  if (ranks == nullptr) {  // a plan can be shown anywhere
    if (const auto gpu = find_cuda_device(nullptr)) {
      out.name = gpu->name;
      out.free_bytes = gpu->free_bytes;
    }
    return out;
  }
  const CudaDeviceInfo gpu = required_gpu(config.device);
  out.name = gpu.name;
  out.peak_flops = peak_flops_of(gpu.name);
  if (ranks->transport() != "thread") out.ranks = 1;
  if (ranks->transport() == "nccl") {
    out.library_bytes = kNcclBytes;
    if (ranks->shares_gpu()) out.ranks = ranks->num_here();
  }
  out.free_bytes = on_every_rank(ranks->runner(), {}, [&](Communicator& world) {
    return std::ranges::min(one_from_all(world, gpu.free_bytes));
  });
  return out;
}

void settle_micro_batch(const TrainDevice& gpu, const Mesh& mesh,
                        TrainConfig& config) {
  if (!config.chooses_micro_batch()) return;
  if (gpu.bytes_per_rank() == 0)
    throw UsageError(
        cat("batch.micro auto (", config.origin("batch.micro"),
            "): expected a GPU, whose free memory decides; there is none here; "
            "give a number, or the memory of a rank by --memory-cap"));
  config.batch.micro = 1;
  const TrainJob job = make_job(config, mesh);
  config.batch.micro = std::max<int64_t>(
      1, most_at_once(gpu, job, job.settings.decoder.recompute));
  config.origins["batch.micro"] =
      cat("auto: the most that fit in ", human_bytes(gpu.bytes_per_rank()),
          gpu.bytes_per_rank() == gpu.cap_bytes ? " of --memory-cap"
                                                : cat(" of ", gpu.name));
}

void require_fits(const TrainDevice& gpu, const TrainJob& job) {
  const int64_t plan = plan_bytes(job);
  const int64_t needed = plan + job.activations;
  if (needed <= gpu.bytes_per_rank()) return;
  throw UsageError(cat(
      "the run does not fit on ", gpu.name, ": ",
      gpu.ranks > 1 ? cat(gpu.ranks, " ranks with ") : "", human_bytes(needed),
      gpu.ranks > 1 ? " each" : "", ", ", human_bytes(plan),
      " by the plan and ", human_bytes(job.activations),
      " of activations and workspace",
      gpu.library_bytes > 0
          ? cat(", beside about ", human_bytes(gpu.library_bytes), " for NCCL")
          : "",
      ", but ", human_bytes(gpu.free_bytes), " are free, of which ",
      human_bytes(gpu.free_bytes / 16), " are left to the rules",
      what_fits(gpu, job)));
}

}  // namespace canzona::cli
