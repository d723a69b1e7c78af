// Copies and order of work on a CPU, where all is done when a call returns.
#include <cstring>

#include "canzona/linalg/cpu/cpu_engine.h"

namespace canzona {
namespace {

class PastEvent final : public Event {
 public:
  bool reached() override { return true; }
  void wait() override {}
};

class KeptNotice final : public Notice {
 public:
  void post(Engine&, const int32_t* number) override { number_ = *number; }
  int32_t wait() override { return number_; }

 private:
  int32_t number_ = 0;
};

}  // namespace

void CpuEngine::upload(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void CpuEngine::download(std::byte* to, const std::byte* from, int64_t bytes) {
  upload(to, from, bytes);
}

void CpuEngine::set_zero(std::byte* to, int64_t bytes) {
  if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
}

void CpuEngine::wait_for(Engine&) {}

std::unique_ptr<Event> CpuEngine::record() {
  return std::make_unique<PastEvent>();
}

std::unique_ptr<Notice> CpuEngine::make_notice() {
  return std::make_unique<KeptNotice>();
}

void CpuEngine::if_zero(const int32_t* flag,
                        const std::function<void()>& work) {
  if (*flag == 0) work();
}

}  // namespace canzona
