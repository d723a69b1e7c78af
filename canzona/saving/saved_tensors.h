// The tensors of a checkpoint in which a runtime's state is saved. Internal to
// this room.
#pragma once

#include "canzona/checkpoint/boxes.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

inline LogicalTensor tensor_of(const StateBox& box) {
  return {box.name(), StoredType::kF32, box.shape};
}
inline TensorBox box_of(const StateBox& box) { return {box.first, box.count}; }

// The number of steps done, without those that were skipped.
inline LogicalTensor steps_tensor() {
  return {"run/steps_done", StoredType::kI64, {}};
}

}  // namespace canzona
