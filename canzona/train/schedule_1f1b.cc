#include "canzona/train/schedule_1f1b.h"

#include <algorithm>

namespace canzona {

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

int64_t most_in_flight(int64_t stage, int64_t num_stages,
                       int64_t num_micro_batches) {
  return std::min(num_stages - stage, num_micro_batches);
}

}  // namespace canzona
