// The GPU of `canzona train --device cuda`, and what fits on it.
//
//   const auto gpu = find_train_device(config, mesh, ranks);   // none: a CPU
//   if (gpu) settle_micro_batch(*gpu, mesh, config);
//   TrainJob job = make_job(config, mesh);
//   if (gpu) require_fits(*gpu, job);
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "canzona/train/config.h"
#include "cli/ranks.h"
#include "cli/train_job.h"

namespace canzona::cli {

struct TrainDevice {
  std::string name;           // "NVIDIA H200"
  int64_t free_bytes = 0;     // on the fullest GPU; 0: there is none here
  int64_t cap_bytes = 0;      // --memory-cap of a rank; 0: none
  int64_t ranks = 1;          // on each
  int64_t library_bytes = 0;  // of NCCL, on each rank
  // The maker's figure for bf16 products with dense operands; 0: not known.
  double peak_flops = 0;

  // Returns what a rank may use; some of a GPU's memory is left for scratch
  // memory of the rules.
  int64_t bytes_per_rank() const {
    if (free_bytes == 0) return cap_bytes;
    const int64_t share =
        (free_bytes - free_bytes / 16) / ranks - library_bytes;
    return cap_bytes == 0 ? share : std::min(share, cap_bytes);
  }
};

// Returns nothing on a CPU. Throws UsageError if there is no GPU, or one that
// is too old; a plan that is only shown (`ranks` null) needs none. All
// processes must call it.
std::optional<TrainDevice> find_train_device(const TrainConfig& config,
                                             const Mesh& mesh, Ranks* ranks);

// Replaces batch.micro=auto by the most sequences that fit, with the reason as
// its origin.
void settle_micro_batch(const TrainDevice& gpu, const Mesh& mesh,
                        TrainConfig& config);

// Throws UsageError that says what is needed, what is free, and what would fit.
void require_fits(const TrainDevice& gpu, const TrainJob& job);

}  // namespace canzona::cli
