#include "canzona/train/module_uses.h"

namespace canzona {
namespace {

std::vector<int32_t> forward_uses(const StageModules& modules) {
  std::vector<int32_t> uses;
  if (modules.has_embedding) uses.push_back(0);
  for (int32_t i = 1; i <= modules.num_layers; ++i)
    uses.push_back(modules.first_layer + i);
  if (!modules.has_head) return uses;
  if (modules.tied && modules.has_embedding) uses.push_back(0);
  uses.push_back(modules.layers_of_model + 1);
  return uses;
}

std::vector<int32_t> backward_uses(const StageModules& modules) {
  std::vector<int32_t> uses;
  if (modules.has_head) {
    if (modules.tied && modules.has_embedding) uses.push_back(0);
    uses.push_back(modules.layers_of_model + 1);
  }
  for (int32_t i = modules.num_layers; i >= 1; --i)
    uses.push_back(modules.first_layer + i);
  if (modules.has_embedding) uses.push_back(0);
  return uses;
}

}  // namespace

StageModules stage_modules(const DecoderConfig& config,
                           const Parallel& parallel) {
  return {.first_layer = static_cast<int32_t>(parallel.first_layer),
          .num_layers = static_cast<int32_t>(parallel.num_layers),
          .layers_of_model = static_cast<int32_t>(config.architecture.layers),
          .has_embedding = parallel.has_embedding,
          .has_head = parallel.has_head,
          .tied = config.architecture.tied};
}

std::vector<int32_t> module_uses(const StageModules& modules,
                                 std::span<const StageTask> tasks) {
  const std::vector<int32_t> forward = forward_uses(modules);
  const std::vector<int32_t> backward = backward_uses(modules);
  std::vector<int32_t> uses;
  const bool lends = modules.tied && modules.has_embedding && !modules.has_head;
  if (lends) uses.push_back(0);
  for (const StageTask& task : tasks) {
    const std::vector<int32_t>& more = task.forward ? forward : backward;
    uses.insert(uses.end(), more.begin(), more.end());
  }
  return uses;
}

std::vector<int32_t> evaluation_uses(const StageModules& modules,
                                     int64_t num_micro_batches) {
  const std::vector<StageTask> tasks(static_cast<size_t>(num_micro_batches));
  return module_uses(modules, tasks);
}

}  // namespace canzona
