#include "canzona/c/step_handle.h"

#include <new>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/c/layout_json.h"

namespace canzona {
namespace {

constexpr int32_t kMostThreads = 1024;

void check_request(const PlacedPlan& plan, const StepRequest& request) {
  if (request.rank < 0 || request.rank >= plan.world)
    throw UsageError(cat("canzona_step_new: rank ", request.rank,
                         ", expected 0 to ", plan.world - 1));
  if (request.threads < 1 || request.threads > kMostThreads)
    throw UsageError(cat("canzona_step_new: ", request.threads,
                         " threads, expected 1 to ", kMostThreads));
  const canzona_allocator* scratch = request.scratch;
  if (scratch != nullptr &&
      (scratch->allocate == nullptr || scratch->release == nullptr))
    throw UsageError("canzona_step_new: a function of scratch is NULL");
}

}  // namespace

std::byte* LentScratch::allocate(int64_t bytes) {
  void* memory = allocator_.allocate(allocator_.context, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

void LentScratch::release(std::byte* memory) {
  allocator_.release(allocator_.context, memory);
}

StepHandle::StepHandle(std::shared_ptr<const PlanHandle> plan,
                       const StepRequest& request)
    : plan_(std::move(plan)), device_(read_device(request.device)) {
  check_request(plan_->plan(), request);
  const CurrentCudaDevice before(-1);
  if (device_.is_cuda) {
    if (request.scratch != nullptr) scratch_.emplace(*request.scratch);
    Memory* scratch = scratch_ ? &*scratch_ : nullptr;
    engine_ = cuda_engine_of(device_, request.stream, scratch);
    // The second engine's shapes run beside those of the first; all its work
    // lies between two points in the first one's order.
    beside_ = make_cuda_engine(device_.number, nullptr, scratch);
    step_ = std::make_unique<LentStep>(
        plan_->plan(), request.rank,
        std::vector<Engine*>{engine_.get(), beside_.get()});
  } else {
    lanes_ = std::make_unique<Lanes>(request.threads,
                                     [] { return make_cpu_engine(); });
    step_ = std::make_unique<LentStep>(plan_->plan(), request.rank, *lanes_);
  }
}

StepHandle::~StepHandle() {
  const CurrentCudaDevice current(device_.gpu());
  step_.reset();
  beside_.reset();
  engine_.reset();
}

const std::string& StepHandle::layout() {
  if (layout_.empty()) layout_ = layout_json(plan(), step_->schedule());
  return layout_;
}

StepUse::StepUse(std::shared_ptr<StepHandle> handle, const char* function)
    : handle_(std::move(handle)), current_(handle_->device().gpu()) {
  if (handle_->in_use.test_and_set(std::memory_order_acquire))
    throw UsageError(cat(function, ": another thread is using this step"));
}

}  // namespace canzona
