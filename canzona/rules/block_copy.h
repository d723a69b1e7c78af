// Between a tensor and one of its blocks (blocks.h), whose elements lie side by
// side in a run of their own.
//
//   copy_out(engine, room, grad, blocking, block);
//   …                                              work on the room
//   copy_back(engine, grad, room, blocking, block);
//
// `count` tensors lie one after another, and so do their blocks. Nothing
// allocates. Room and tensors do not overlap and have one type.
#pragma once

#include "canzona/linalg/engine.h"
#include "canzona/rules/blocks.h"

namespace canzona {

void copy_out(Engine& engine, Run room, ConstRun tensor,
              const Blocking& blocking, const TensorBlock& block,
              int64_t count = 1);
void copy_back(Engine& engine, Run tensor, ConstRun room,
               const Blocking& blocking, const TensorBlock& block,
               int64_t count = 1);

}  // namespace canzona
