// The handles of canzona.h stand for plans, and for steps on the caller's
// memory.
#pragma once

#include <atomic>
#include <cfenv>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "canzona/c/calls.h"
#include "canzona/c/canzona.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/lanes.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/runtime/caller/caller_step.h"

namespace canzona::c {

// A canzona_plan is a plan of given storage and its texts, which are made on
// first use and live as long as the handle. Any thread may call.
class PlanHandle {
 public:
  explicit PlanHandle(StoragePlan plan) : plan_(std::move(plan)) {}

  const StoragePlan& plan() const { return plan_; }

  // Returns the text of that name; calls `make` if there is none yet.
  const char* text(const std::string& name,
                   const std::function<std::string(const StoragePlan&)>& make) {
    const std::lock_guard lock(mutex_);
    auto at = texts_.find(name);
    if (at == texts_.end()) at = texts_.emplace(name, make(plan_)).first;
    return at->second.c_str();
  }

 private:
  const StoragePlan plan_;
  std::mutex mutex_;
  std::map<std::string, std::string> texts_;
};

// Throws UsageError naming the function if there is no such plan.
std::shared_ptr<PlanHandle> plan_of(const canzona_plan* plan,
                                    const char* function);

// A canzona_step is a step on the caller's memory, with the engines that
// execute it. One thread at a time; a second one is refused.

// Makes the arithmetic of a step that of IEEE 754 whatever floating-point mode
// the caller's thread has, such as flushing denormals or another rounding
// direction.
class PlainArithmetic {
 public:
  PlainArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~PlainArithmetic() { std::fesetenv(&before_); }
  PlainArithmetic(const PlainArithmetic&) = delete;
  PlainArithmetic& operator=(const PlainArithmetic&) = delete;

 private:
  std::fenv_t before_;
};

// Scratch memory that the caller provides.
class CallerScratch : public Memory {
 public:
  explicit CallerScratch(const canzona_allocator& allocator)
      : allocator_(allocator) {}
  std::byte* allocate(int64_t bytes) override;
  void release(std::byte* memory) override;

 private:
  const canzona_allocator allocator_;
};

struct StepRequest {
  int32_t rank = 0;
  const char* device = nullptr;
  void* stream = nullptr;
  int32_t threads = 1;
  const canzona_allocator* scratch = nullptr;
};

class StepHandle {
 public:
  // The plan lives as long as the handle. Throws UsageError for a request that
  // cannot be fulfilled.
  StepHandle(std::shared_ptr<const PlanHandle> plan,
             const StepRequest& request);
  ~StepHandle();
  StepHandle(const StepHandle&) = delete;
  StepHandle& operator=(const StepHandle&) = delete;

  const StoragePlan& plan() const { return plan_->plan(); }
  const NamedDevice& device() const { return device_; }
  const std::string& layout();
  CallerStep& step() { return *step_; }

  std::atomic_flag in_use;

 private:
  const std::shared_ptr<const PlanHandle> plan_;
  const NamedDevice device_;
  std::optional<CallerScratch> scratch_;
  std::unique_ptr<Lanes> lanes_;             // on a CPU
  std::unique_ptr<Engine> engine_, beside_;  // on a GPU
  std::unique_ptr<CallerStep> step_;
  std::string layout_;
};

// A handle in use by the calling thread, with standard arithmetic and its GPU
// as the thread's current one.
class StepUse {
 public:
  // Throws UsageError naming the function if another thread uses it.
  StepUse(std::shared_ptr<StepHandle> handle, const char* function);
  ~StepUse() { handle_->in_use.clear(std::memory_order_release); }
  StepUse(const StepUse&) = delete;
  StepUse& operator=(const StepUse&) = delete;

  StepHandle& handle() const { return *handle_; }
  CallerStep* operator->() const { return &handle_->step(); }

 private:
  const PlainArithmetic plain_;
  const std::shared_ptr<StepHandle> handle_;
  const CurrentCudaDevice current_;
};

// Writes the JSON of canzona_step_layout(): docs/c_interface.md.
std::string layout_json(const StoragePlan& plan, const RankSchedule& schedule);

}  // namespace canzona::c
