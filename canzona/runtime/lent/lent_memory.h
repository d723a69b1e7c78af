// Memory that a caller lends for steps (lent_step.h): all of it in the engine's
// memory, none of it owned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "canzona/linalg/matrix.h"

namespace canzona {

// It stays where it is until other memory is bound. Tensors are those of the
// plan; null where this rank stores nothing of one.
struct LentMemory {
  std::vector<std::byte*> weights;  // by tensor, in the tensor's dtype
  std::vector<float*> masters;  // by tensor; of bf16 tensors, the fp32 weights
  std::vector<float*> states;   // by number in PlacedSchedule::memories
  std::byte* slots = nullptr;   // PlacedSchedule::slot_elements of the wire
  int64_t* numbers = nullptr;   // kLentNumbers of them
};
inline constexpr int64_t kLentNumbers = 16;

// The gradient of what a rank stores of a tensor. Null: the tensor has none in
// this step and is left alone; where the rank stores nothing of a tensor that
// has one, any other address. It lies wherever it likes at each step and is
// never written but by LentStep::clip().
struct LentGradient {
  std::byte* data = nullptr;
  DType dtype = DType::kFp32;  // or kBf16
};

}  // namespace canzona
