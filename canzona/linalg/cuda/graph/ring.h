// Memory of this process that the GPU can read, for what kernels need once:
// scalars, and tables on their way to the device.
//
//   const std::byte* scalars = ring.put(bytes, stream);
//   kernel<<<…, stream>>>(scalars);
//
// What was put stays for the launches that follow it at once. When the ring is
// full it waits for the stream and begins again. One thread at a time, one
// stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace canzona {

class Ring {
 public:
  Ring() = default;
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // In memory of this process, mapped: for a few numbers.
  const std::byte* put(std::span<const std::byte> bytes, cudaStream_t stream);
  // In memory of the device, copied there by the stream.
  const std::byte* put_on_device(std::span<const std::byte> bytes,
                                 cudaStream_t stream);

 private:
  struct Memory {
    std::byte* host = nullptr;
    std::byte* device = nullptr;  // as large
    int64_t size = 0;
  };

  // The offset of so many bytes in the memory in use, the last one.
  int64_t take(int64_t bytes, cudaStream_t stream);
  void add(int64_t size);

  // Older ones are smaller, and kept: launches under way may read them.
  std::vector<Memory> memories_;
  int64_t used_ = 0;
};

}  // namespace canzona
