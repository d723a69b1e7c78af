// Repeated work. It is run dry first, which gives its signature and scalars.
// If that signature has a graph, the scalars are copied and the graph is
// launched; else the work is captured.
#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/linalg/cuda/check.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/graph/graphs.h"

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
  // Arenas that grew become one piece at the end of a run, so that the next
  // one finds other addresses, and from then on the same.
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

}  // namespace canzona
