// Words in host memory that streams of a GPU write and wait for, and work that
// only takes time.
//
//   CudaWords words;
//   std::atomic<uint32_t>& clock = words.make();
//   CudaWords::wait(stream, clock, 7);   // the stream stops here
//   clock.store(7);                      // and goes on
//
// The driver's own operation blocks a stream without a kernel; if a driver has
// none, one thread of the GPU polls the word. The words live as long as this
// object, which must outlive the issued work. One thread at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>

#include "canzona/linalg/memory.h"

namespace canzona::linalg {

class CudaWords {
 public:
  CudaWords() = default;
  ~CudaWords();
  CudaWords(const CudaWords&) = delete;
  CudaWords& operator=(const CudaWords&) = delete;

  bool empty() const { return pages_.empty(); }
  std::atomic<uint32_t>& make();

  static void write(cudaStream_t stream, std::atomic<uint32_t>& word,
                    uint32_t value);
  // Waits until the word is at least `value`, modulo 2^32.
  static void wait(cudaStream_t stream, const std::atomic<uint32_t>& word,
                   uint32_t value);

 private:
  std::deque<void*> pages_;
  int used_ = 0;  // in the last page
};

// Makes the stream idle for this long.
void launch_idle(cudaStream_t stream, double seconds);

// A stream for the memory operations of collectives on a GPU, and events that
// order it with engines.
//
//   auto lane = make_cuda_lane();
//   auto event = make_cuda_event();
//   lane->record_in(*event);
//   wait_for_cuda_event(*event, stream);
//
// Lanes belong to the calling thread's device. One thread at a time may issue
// to a stream; any thread may query events.

std::unique_ptr<MemoryLane> make_cuda_lane();

// All events of lanes and engines of the GPU are made here.
std::unique_ptr<Event> make_cuda_event();
std::unique_ptr<Event> make_timed_cuda_event();
void record_cuda_event(Event& event, cudaStream_t stream);
// Does nothing if the event was never recorded.
void wait_for_cuda_event(const Event& event, cudaStream_t stream);

}  // namespace canzona::linalg
