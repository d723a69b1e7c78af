// The modules (runtime/modules.h) that a pipeline stage waits for in a step or
// an evaluation, in order: what a runtime gathers that keeps a part of the
// parameters alone.
//
//   const StageModules modules = stage_modules(config, parallel);
//   runtime.begin_step(module_uses(modules, tasks), num_announcements(tasks));
//
// A micro-batch uses the modules of its stage forwards and then backwards; a
// tied head uses the embedding beside its own, where the stage has both. Where
// it has not, the stage of the embedding uses that once more, at first, to lend
// it. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/model/decoder_config.h"
#include "canzona/model/parallel.h"
#include "canzona/train/schedule_1f1b.h"

namespace canzona {

// What a stage has of the model.
struct StageModules {
  int32_t first_layer = 0;
  int32_t num_layers = 0;
  int32_t layers_of_model = 0;
  bool has_embedding = true;
  bool has_head = true;
  bool tied = false;
};

StageModules stage_modules(const DecoderConfig& config,
                           const Parallel& parallel);

std::vector<int32_t> module_uses(const StageModules& modules,
                                 std::span<const StageTask> tasks);
std::vector<int32_t> evaluation_uses(const StageModules& modules,
                                     int64_t num_micro_batches);

}  // namespace canzona
