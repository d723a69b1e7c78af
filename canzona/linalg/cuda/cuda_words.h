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

namespace canzona {

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

}  // namespace canzona
