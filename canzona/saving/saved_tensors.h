// The tensors of a checkpoint that a runtime's state is saved as. For the
// sources of this room.
#pragma once

#include "canzona/checkpoint/boxes.h"
#include "canzona/runtime/runtime.h"

namespace canzona {

inline LogicalTensor tensor_of(const StateBox& box) {
  return {box.name(), StoredType::kF32, box.shape};
}
inline TensorBox box_of(const StateBox& box) { return {box.first, box.count}; }

// The number of steps that the runtime has done: those that were not skipped.
inline LogicalTensor steps_tensor() {
  return {"run/steps_done", StoredType::kI64, {}};
}

}  // namespace canzona
