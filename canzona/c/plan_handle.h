// A canzona_plan is a plan of placed storage and its texts, which are made on
// first use and live as long as the handle. Any thread may call.
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

  // Returns the text of that name; calls `make` if there is none yet.
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

// Throws UsageError naming the function if there is no such plan.
std::shared_ptr<PlanHandle> plan_of(const canzona_plan* plan,
                                    const char* function);

}  // namespace canzona
