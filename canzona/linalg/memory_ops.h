// What collectives do to memory of a device, without an engine.
//
//   const MemoryOps& ops = memory_ops("cuda");
//   ops.add_fp32(sum, a, b, count);
//
// Every function has ended when it returns; any number of threads may call. On
// a GPU they do not wait for engines: whoever uses memory that an engine works
// on waits for the engine first. An element's bits depend neither on its place
// nor on its neighbours, and are the same on every device, a sum of NaNs aside.
// Pointers are aligned to their elements. Results may lie where an operand
// lies, and overlap none by a part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace canzona {

class MemoryOps {
 public:
  virtual ~MemoryOps() = default;

  // Whether it is memory of this process.
  virtual bool is_host() const = 0;

  // Aligned to 128 bytes or more; std::bad_alloc if there is none left.
  virtual std::byte* allocate(int64_t bytes) const = 0;
  virtual void release(std::byte* memory) const = 0;

  // Either side may be memory of this process or of the device.
  virtual void copy(std::byte* to, const std::byte* from,
                    int64_t bytes) const = 0;

  virtual void add_fp32(float* sum, const float* a, const float* b,
                        int64_t count) const = 0;
  // Modulo 2^64.
  virtual void add_int64(int64_t* sum, const int64_t* a, const int64_t* b,
                         int64_t count) const = 0;
  virtual void max_int64(int64_t* larger, const int64_t* a, const int64_t* b,
                         int64_t count) const = 0;
  // Two words each, the lower first; modulo 2^128.
  virtual void add_int128(uint64_t* sum, const uint64_t* a, const uint64_t* b,
                          int64_t count) const = 0;

  // To nearest, ties to even; a NaN stays one.
  virtual void to_bf16(uint16_t* to, const float* from,
                       int64_t count) const = 0;
  virtual void from_bf16(float* to, const uint16_t* from,
                         int64_t count) const = 0;
};

// They live as long as the program.
const MemoryOps& cpu_memory_ops();
// UsageError as from make_cuda_engine().
const MemoryOps& cuda_memory_ops();
// "cpu" or "cuda"; UsageError names what else was asked for.
const MemoryOps& memory_ops(std::string_view device);

}  // namespace canzona
