// Work of an engine inside a graph that the engine's caller captures, such as a
// CUDA graph of PyTorch's that has a model's forward, backward and step.
//
//   part = add_to_capture(engine, {.first = look, .then = update, …});
//
// Graphs of our own give way to the caller's: `repeat` and `guard` inside the
// work become parts of that graph. The scalars of `then` are asked for anew
// before each replay, by a call from a thread of the device's.
//
// cuda/ or no_cuda.cc implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "canzona/linalg/engine.h"

namespace canzona::linalg {

// All functions may be called more often than the work is done. Those of a
// replay run on a thread of the device's while nobody else may use the engine,
// and must not call the device.
struct CapturedWork {
  // A number of up to 8 bytes in the engine's memory.
  struct Read {
    const std::byte* from = nullptr;
    int64_t bytes = 0;
  };

  std::function<void()> first;  // its scalars stay as they are
  std::function<void()> then;
  std::vector<Read> reads;
  // Begins a replay: sets what `then` takes its scalars from. Gets the numbers
  // of `reads`, 8 bytes each, as they are before `first`. False refuses the
  // replay.
  std::function<bool(std::span<const std::byte> numbers)> before;
  // Ends a replay; `skipped`: *skip was not 0.
  std::function<void(bool skipped, bool refused)> after;
  // In the engine's memory. `refusal` is raised to kUnlikeCode between `first`
  // and `then` if the replay is refused, or if `then` would make other calls
  // than those that were captured.
  int64_t* refusal = nullptr;
  const int32_t* skip = nullptr;
};

// The memory of captured work, whose graph must not be replayed once this is
// gone. A replay that is under way then calls none of its functions.
class CapturedPart {
 public:
  CapturedPart() = default;
  virtual ~CapturedPart() = default;
  CapturedPart(const CapturedPart&) = delete;
  CapturedPart& operator=(const CapturedPart&) = delete;
};

// Throws UsageError if the engine's stream is not being captured, if the work
// asks for results, or if it needs more scratch than earlier work has left: a
// step outside of the capture must come first. The engine must outlive the
// result.
std::unique_ptr<CapturedPart> add_to_capture(Engine& engine, CapturedWork work);

}  // namespace canzona::linalg
