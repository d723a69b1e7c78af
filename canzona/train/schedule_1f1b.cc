#include "canzona/train/schedule_1f1b.h"

#include <algorithm>

namespace canzona {
namespace {

// Adds pairs of tasks of one direction.
void add_pairs(std::span<const StageTask> run, std::vector<StageTask>& pairs) {
  const bool forward = run.front().forward;
  const auto size = std::ssize(run);
  // The odd one is the last forward, or the first backward.
  const int64_t alone = size % 2 == 0 ? -1 : forward ? size - 1 : 0;
  for (int64_t i = 0; i < size;) {
    const int64_t count = i == alone ? 1 : 2;
    pairs.push_back({forward, run[static_cast<size_t>(i)].micro_batch, count});
    i += count;
  }
}

}  // namespace

std::vector<StageTask> schedule_1f1b(int64_t stage, int64_t num_stages,
                                     int64_t num_micro_batches) {
  const int64_t ahead = std::min(num_stages - 1 - stage, num_micro_batches);
  std::vector<StageTask> tasks;
  for (int64_t m = 0; m < ahead; ++m) tasks.push_back({true, m});
  for (int64_t m = ahead; m < num_micro_batches; ++m) {
    tasks.push_back({true, m});
    tasks.push_back({false, m - ahead});
  }
  for (int64_t m = num_micro_batches - ahead; m < num_micro_batches; ++m)
    tasks.push_back({false, m});
  return tasks;
}

std::vector<StageTask> pair_neighbours(std::span<const StageTask> tasks) {
  std::vector<StageTask> pairs;
  while (!tasks.empty()) {
    const auto other =
        std::ranges::find(tasks, !tasks.front().forward, &StageTask::forward);
    const auto size = static_cast<size_t>(other - tasks.begin());
    add_pairs(tasks.first(size), pairs);
    tasks = tasks.subspan(size);
  }
  return pairs;
}

int64_t most_in_flight(int64_t stage, int64_t num_stages,
                       int64_t num_micro_batches) {
  return std::min(num_stages - stage, num_micro_batches);
}

int64_t most_together(std::span<const StageTask> tasks) {
  int64_t most = 1;
  for (const StageTask& task : tasks)
    if (!task.forward) most = std::max(most, task.count);
  return most;
}

int64_t num_announcements(std::span<const StageTask> tasks) {
  return std::ranges::count(tasks, false, &StageTask::forward);
}

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
