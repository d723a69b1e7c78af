// Numbers in an engine's memory, which this process accesses only by copying.
//
//   EngineMemory memory(engine);
//   Run grad = memory.put(values);
//   std::vector<float> back = memory.get<float>(grad.data, 10);
//
// The destructor frees them. Only the engine's thread may use it, and the
// engine must outlive it.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/linalg/engine.h"

namespace canzona {

class EngineMemory {
 public:
  explicit EngineMemory(Engine& engine)
      : engine_(engine), arena_(engine.memory()), scope_(arena_) {}

  Arena& arena() { return arena_; }
  Run take(int64_t count, DType dtype = DType::kFp32) {
    return {arena_.take(count * size_of(dtype)), dtype};
  }
  Run zeros(int64_t count, DType dtype = DType::kFp32) {
    const Run run = take(count, dtype);
    engine_.set_zero(run.data, count * size_of(dtype));
    return run;
  }
  uint16_t* rounded(int64_t count) {
    return arena_.take_array<uint16_t>(count);
  }
  template <class Real>
  Run put(const std::vector<Real>& values) {
    const Run run = take(std::ssize(values), DTypeOf<Real>::value);
    set(run, values);
    return run;
  }

  template <class Real>
  void set(Run run, const std::vector<Real>& values) const {
    engine_.upload(run.data, reinterpret_cast<const std::byte*>(values.data()),
                   static_cast<int64_t>(values.size() * sizeof(Real)));
  }
  template <class T>
  std::vector<T> get(const std::byte* data, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    engine_.download(reinterpret_cast<std::byte*>(values.data()), data,
                     count * static_cast<int64_t>(sizeof(T)));
    return values;
  }

 protected:
  Engine& engine_;

 private:
  Arena arena_;
  Arena::Scope scope_;
};

}  // namespace canzona
