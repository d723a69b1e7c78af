// A canzona_plan stands for a plan of placed storage and its texts, which are
// made when they are first asked for and live as long as the handle.
// Any thread may call.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "canzona/c/canzona.h"
#include "canzona/plan/placed/placed_plan.h"

namespace canzona {

class PlanHandle {
 public:
  explicit PlanHandle(PlacedPlan plan) : plan_(std::move(plan)) {}

  const PlacedPlan& plan() const { return plan_; }

  // The text of that name; `make` is called if there is none yet.
  const char* text(const std::string& name,
                   const std::function<std::string(const PlacedPlan&)>& make) {
    const std::lock_guard lock(mutex_);
    auto at = texts_.find(name);
    if (at == texts_.end()) at = texts_.emplace(name, make(plan_)).first;
    return at->second.c_str();
  }

 private:
  const PlacedPlan plan_;
  std::mutex mutex_;
  std::map<std::string, std::string> texts_;
};

// UsageError, which names the function, if there is no such plan.
std::shared_ptr<PlanHandle> plan_of(const canzona_plan* plan,
                                    const char* function);

}  // namespace canzona
