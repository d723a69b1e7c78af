// Repeated work. It first runs dry, which gives its signature and scalars. If
// there is a graph of that signature, the scalars are copied and the graph is
// launched; otherwise the work is captured.
#include <algorithm>
#include <map>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/device.h"
#include "canzona/linalg/cuda/graph/graphs.h"
#include "canzona/linalg/cuda/graph/profile.h"

namespace canzona {
namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using CapturedGraph =
    std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

}  // namespace

void CudaEngine::refuse_results() const {
  if (recording_->is_dry()) throw NeedsResults{};
  throw InternalError(
      "repeated work asked for results when it was captured, but not when it "
      "was run dry");
}

void CudaEngine::repeat(const std::function<void()>& work) {
  if (recording_ != nullptr) {
    work();
    return;
  }
  // Arenas that grew are merged at the end of a run, so the next run has
  // different addresses, which then stay the same.
  constexpr int kMostRuns = 8;
  for (int run = 0; run < kMostRuns; ++run) {
    Recording recording(*this);
    try {
      work();
    } catch (const NeedsResults&) {
      break;
    }
    if (recording.arenas_grew()) continue;
    launch(recording, work);
    return;
  }
  work();
}

void CudaEngine::launch(Recording& dry_run, const std::function<void()>& work) {
  const std::vector<CudaEngine*> engines = dry_run.release();
  Graph* graph = graphs_->find(dry_run.signature());
  if (graph == nullptr) graph = &capture(dry_run, work);
  for (CudaEngine* other : engines)
    if (other != this) wait_for(*other);
  graph->launch(dry_run.scalars().bytes(), own_stream_);
  for (CudaEngine* other : engines)
    if (other != this) other->wait_for(*this);
}

Graph& CudaEngine::capture(Recording& dry_run,
                           const std::function<void()>& work) {
  auto graph = std::make_unique<Graph>(
      static_cast<int64_t>(dry_run.scalars().bytes().size()),
      dry_run.tables().bytes());
  Graph& made = *graph;
  Recording recording(*this, made.scalars(), made.tables());
  const CapturedGraph captured(recording.capture(work));
  CANZONA_CHECK(recording.signature() == dry_run.signature() &&
                    recording.scalars().bytes().size() ==
                        dry_run.scalars().bytes().size(),
                "repeated work made other calls when it was captured");
  recording.release();
  made.take(captured.get(), own_stream_);
  graphs_->add(dry_run.signature(), std::move(graph));
  return made;
}

int64_t CudaEngine::num_graphs() const { return graphs_->size(); }

void CudaEngine::if_zero(const int32_t* flag,
                         const std::function<void()>& work) {
  if (recording_ != nullptr) {
    recording_->if_zero(*this, flag, work);
    return;
  }
  if (results(flag, 1)[0] == 0) work();
}

void CudaEngine::guard(const int32_t* flag, const std::function<void()>& work) {
  if (recording_ != nullptr) return if_zero(flag, work);
  CANZONA_CHECK(skip_ == nullptr, "a guard inside another");
  skip_ = flag;
  try {
    work();
  } catch (...) {
    skip_ = nullptr;
    throw;
  }
  skip_ = nullptr;
}

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
