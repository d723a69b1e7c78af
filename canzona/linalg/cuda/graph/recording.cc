#include "canzona/linalg/cuda/graph/recording.h"

#include <algorithm>
#include <map>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/environment.h"
#include "canzona/base/error.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/device.h"
#include "canzona/linalg/cuda/graph/graphs.h"
#include "canzona/linalg/cuda/graph/notice.h"

namespace canzona::linalg {
namespace {

constexpr int64_t kAlignment = 16;
// Returned in dry runs, where nobody reads it.
alignas(kAlignment) constexpr std::byte kNowhere[kAlignment] = {};

// Other threads may make any calls during a capture, and a kernel that is
// loaded on its first use within one does no harm.
constexpr cudaStreamCaptureMode kMode = cudaStreamCaptureModeRelaxed;

}  // namespace

int64_t PushedBytes::append(std::span<const std::byte> bytes) {
  const auto offset = static_cast<int64_t>(bytes_.size());
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  const auto end = static_cast<int64_t>(bytes_.size());
  bytes_.resize(
      static_cast<size_t>((end + kAlignment - 1) / kAlignment * kAlignment));
  return offset;
}

Recording::Recording(CudaEngine& origin) : origin_(origin) { join(origin); }

Recording::Recording(CudaEngine& origin, std::byte* scalars, std::byte* tables)
    : origin_(origin), scalar_memory_(scalars), table_memory_(tables) {
  CANZONA_CHECK(scalars != nullptr && tables != nullptr, "memory of a capture");
  check_cuda(cudaEventCreateWithFlags(&edge_, cudaEventDisableTiming),
             "cudaEventCreateWithFlags");
  join(origin);
}

Recording::~Recording() {
  release();
  for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  if (edge_ != nullptr) cudaEventDestroy(edge_);
}

const std::byte* Recording::push_scalars(std::span<const std::byte> bytes) {
  const int64_t offset = scalars_.append(bytes);
  return is_dry() ? kNowhere : scalar_memory_ + offset;
}

const std::byte* Recording::push_table(std::span<const std::byte> bytes) {
  signature_.add_bytes(bytes);
  const int64_t offset = tables_.append(bytes);
  return is_dry() ? kNowhere : table_memory_ + offset;
}

void Recording::join(CudaEngine& engine) {
  if (engine.recording_ == this) return;
  CANZONA_CHECK(engine.recording_ == nullptr,
                "an engine takes part in two repetitions at once");
  engine.recording_ = this;
  engines_.push_back(&engine);
  reserved_.push_back(engine.arena().reserved());
}

std::vector<CudaEngine*> Recording::release() {
  for (CudaEngine* engine : engines_) engine->recording_ = nullptr;
  return std::exchange(engines_, {});
}

bool Recording::arenas_grew() const {
  for (size_t i = 0; i < engines_.size(); ++i)
    if (engines_[i]->arena().reserved() != reserved_[i]) return true;
  return false;
}

void Recording::note(std::string_view name, const CudaEngine& engine) {
  signature_.add(name);
  signature_.add(engine.id_);
}

// An engine that is new here has nothing to wait for: a launch comes after
// everything that its engines were given before.
void Recording::order(CudaEngine& first, CudaEngine& then) {
  join(first);
  join(then);
  note("before", first);
  note("after", then);
  if (is_dry()) return;
  const cudaStream_t from = stream_of(first);
  const cudaStream_t to = stream_of(then);
  if (from != to) add_edge(from, to);
}

void Recording::if_zero(CudaEngine& engine, const int32_t* flag,
                        const std::function<void()>& work) {
  note("if_zero", engine);
  signature_.add(flag);
  if (is_dry())
    work();
  else
    capture_condition(engine, flag, work);
  note("end", engine);
}

// Does not use the engine's stream, which may not be capturable (the default
// stream) or may be in use by a caller.
cudaGraph_t Recording::capture(const std::function<void()>& work) {
  const cudaStream_t stream = new_stream();
  check_cuda(cudaStreamBeginCapture(stream, kMode), "cudaStreamBeginCapture");
  bodies_.push_back({{&origin_, stream}});
  return run_body(stream, work);
}

void Recording::capture_on(cudaStream_t stream,
                           const std::function<void()>& work) {
  bodies_.push_back({{&origin_, stream}});
  try {
    work();
    gather(stream);
  } catch (...) {
    join_streams(stream);
    bodies_.pop_back();
    throw;
  }
  bodies_.pop_back();
}

// A body ends on the stream where it began, whatever streams were used
// meanwhile.
cudaGraph_t Recording::run_body(cudaStream_t begun,
                                const std::function<void()>& work) {
  try {
    work();
    gather(begun);
  } catch (...) {
    abandon_body(begun);
    throw;
  }
  bodies_.pop_back();
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(begun, &graph), "cudaStreamEndCapture");
  return graph;
}

// Joins all streams of a body, whatever the state of the capture.
void Recording::join_streams(cudaStream_t begun) {
  for (const Member& member : bodies_.back())
    if (member.stream != begun &&
        cudaEventRecord(edge_, member.stream) == cudaSuccess)
      cudaStreamWaitEvent(begun, edge_, 0);
}

// Ends the capture on all streams. Only the outermost graph is ours.
void Recording::abandon_body(cudaStream_t begun) {
  join_streams(begun);
  bodies_.pop_back();
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(begun, &graph);
  if (bodies_.empty() && status == cudaSuccess) cudaGraphDestroy(graph);
  cudaGetLastError();
}

// The condition comes after everything captured before and before everything
// after, so that every engine may take part in its body.
void Recording::capture_condition(CudaEngine& engine, const int32_t* flag,
                                  const std::function<void()>& work) {
  const cudaStream_t outside = stream_of(engine);
  gather(outside);
  const cudaGraph_t body = add_condition(outside, flag);
  const cudaStream_t inside = new_stream();
  check_cuda(
      cudaStreamBeginCaptureToGraph(inside, body, nullptr, nullptr, 0, kMode),
      "cudaStreamBeginCaptureToGraph");
  bodies_.push_back({{&engine, inside}});
  run_body(inside, work);
  scatter(outside);
}

cudaStream_t Recording::stream_of(CudaEngine& engine) {
  Body& body = bodies_.back();
  for (const Member& member : body)
    if (member.engine == &engine) return member.stream;
  const bool outermost = bodies_.size() == 1;
  const cudaStream_t stream = outermost ? engine.own_stream_ : new_stream();
  add_edge(body.front().stream, stream);
  body.push_back({&engine, stream});
  return stream;
}

void Recording::add_edge(cudaStream_t from, cudaStream_t to) {
  check_cuda(cudaEventRecord(edge_, from), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(to, edge_, 0), "cudaStreamWaitEvent");
}

void Recording::gather(cudaStream_t to) {
  for (const Member& member : bodies_.back())
    if (member.stream != to) add_edge(member.stream, to);
}

void Recording::scatter(cudaStream_t from) {
  for (const Member& member : bodies_.back())
    if (member.stream != from) add_edge(from, member.stream);
}

cudaStream_t Recording::new_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
  streams_.push_back(stream);
  return stream;
}

// Repeated work. It first runs dry, which gives its signature and scalars. If
// there is a graph of that signature, the scalars are copied and the graph is
// launched; otherwise the work is captured.

namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using CapturedGraph =
    std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

// Tools that look at kernels, debuggers and sanitizers, follow plain launches
// better than graphs (docs/gpu.md).
bool graphs_are_wanted() {
  static const bool wanted = [] {
    const char* value = environment_variable("CANZONA_CUDA_GRAPHS");
    return value == nullptr || std::string_view(value) != "0";
  }();
  return wanted;
}

}  // namespace

void CudaEngine::refuse_results() const {
  if (recording_->is_dry()) throw NeedsResults{};
  throw InternalError(
      "repeated work asked for results when it was captured, but not when it "
      "was run dry");
}

void CudaEngine::repeat(const std::function<void()>& work) {
  if (recording_ != nullptr || !graphs_are_wanted()) {
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

}  // namespace canzona::linalg
