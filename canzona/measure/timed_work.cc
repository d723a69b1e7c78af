#include "canzona/measure/timed_work.h"

#include <chrono>
#include <numeric>
#include <thread>

#include "canzona/measure/clock.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona {

TimedWork::TimedWork(const Plan& plan, const Coordinates& at, double seconds)
    : shares_(static_cast<size_t>(num_modules(plan.model)), 0.0) {
  for (size_t t = 0; t < plan.model.tensors.size(); ++t) {
    const Tensor& tensor = plan.model.tensors[t];
    if (holds(plan, at, tensor) && tensor.role != Role::kEmbedding)
      shares_[static_cast<size_t>(module_of(plan.model, tensor))] +=
          static_cast<double>(tensor.elements());
  }
  const double all = std::accumulate(shares_.begin(), shares_.end(), 0.0);
  if (all == 0) shares_.back() = 1;
  for (double& share : shares_) share *= seconds / (all == 0 ? 1 : all);
}

void TimedWork::work(double seconds) {
  if (seconds <= ahead_) {
    ahead_ -= seconds;
    return;
  }
  const double wanted = seconds - ahead_;
  const double begin = wall_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(wanted));
  ahead_ = wall_seconds() - begin - wanted;
}

}  // namespace canzona
