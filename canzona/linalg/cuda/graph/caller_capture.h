// Work of an engine in a graph of its caller's (linalg/caller_capture.h), as it
// is replayed.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "canzona/linalg/caller_capture.h"
#include "canzona/linalg/cuda/graph/recording.h"

namespace canzona::linalg {

// Scalars and tables of recorded work that a caller's graph replays: in host
// memory, from where each replay copies them to the device.
class ReplayedMemory {
 public:
  ReplayedMemory(const PushedBytes& scalars, const PushedBytes& tables);
  ~ReplayedMemory();
  ReplayedMemory(const ReplayedMemory&) = delete;
  ReplayedMemory& operator=(const ReplayedMemory&) = delete;

  std::byte* scalars() const { return device_ + kHead; }
  std::byte* tables() const { return scalars() + num_scalars_; }
  // On the device: kUnlikeCode if this replay is refused, else 0.
  const int64_t* refusal() const {
    return reinterpret_cast<const int64_t*>(device_);
  }

  // False, and nothing is written, if there are not as many bytes as before.
  bool write(std::span<const std::byte> scalars);
  void refuse(bool refused);
  void copy(cudaStream_t stream) const;

 private:
  static constexpr int64_t kHead = 16;

  int64_t num_scalars_;
  int64_t size_;
  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
};

// The state that a graph calls into outlives this object, so that a replay
// under way never touches freed memory.
class CallerCapture final : public CapturedPart {
 public:
  CallerCapture(CudaEngine& engine, CapturedWork work);
  ~CallerCapture() override;

  // Issues the work to the stream that is being captured.
  void issue(cudaStream_t stream);

 private:
  struct Recorded {
    Signature signature;
    std::unique_ptr<ReplayedMemory> memory;
  };
  struct Address {
    std::mutex mutex;
    CallerCapture* capture = nullptr;  // null: it is gone
  };

  Recorded run_dry(const std::function<void()>& work);
  void record(const Recorded& recorded, const std::function<void()>& work,
              cudaStream_t stream);
  int64_t read_bytes() const;
  bool renew();
  static void begin_replay(void* address);
  static void end_replay(void* address);

  CudaEngine& engine_;
  const CapturedWork work_;
  Recorded first_, then_;
  cudaStream_t beside_ = nullptr;  // the host's part of a replay
  cudaEvent_t edge_ = nullptr;
  // In host memory: the numbers that a replay reads, then *skip.
  std::byte* told_ = nullptr;
  bool is_refused_ = false;
  Address* const address_;
};

}  // namespace canzona::linalg
