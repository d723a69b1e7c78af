#include "canzona/linalg/cuda/graph/profile.h"

#include <algorithm>
#include <map>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/check.h"
#include "canzona/linalg/cuda/cuda_engine.h"

namespace canzona {

Profile::~Profile() {
  for (const Mark& mark : marks_) cudaEventDestroy(mark.event);
}

void Profile::begin(std::string_view call, cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "cudaEventCreate");
  marks_.push_back({std::string(call), event});
  check_cuda(cudaEventRecord(event, stream), "cudaEventRecord");
}

std::vector<Engine::StageTime> Profile::end(cudaStream_t stream) {
  begin("", stream);
  check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  std::map<std::string, Engine::StageTime> by_call;
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, marks_[i].event, marks_[i + 1].event),
               "cudaEventElapsedTime");
    Engine::StageTime& time = by_call[marks_[i].call];
    time.stage = marks_[i].call;
    ++time.calls;
    time.seconds += static_cast<double>(ms) * 1e-3;
  }
  std::vector<Engine::StageTime> times;
  for (const auto& [call, time] : by_call) times.push_back(time);
  std::sort(times.begin(), times.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return times;
}

std::vector<Engine::StageTime> CudaEngine::profile(
    const std::function<void()>& work) {
  needs_results();
  CANZONA_CHECK(profile_ == nullptr, "a profile inside another");
  Profile profile;
  profile_ = &profile;
  try {
    work();
  } catch (...) {
    profile_ = nullptr;
    throw;
  }
  profile_ = nullptr;
  return profile.end(own_stream_);
}

}  // namespace canzona
