// Between a tensor and one of its blocks (blocks.h), whose elements lie side by
// side in a run of their own.
//
//   copy_out(engine, room, grad, blocking, block);
//   …                                              work on the room
//   copy_back(engine, grad, room, blocking, block);
//
// Nothing allocates. Room and tensor do not overlap and have one type.
#pragma once

#include "canzona/linalg/engine.h"
#include "canzona/rules/blocks.h"

namespace canzona {

void copy_out(Engine& engine, Run room, ConstRun tensor,
              const Blocking& blocking, const TensorBlock& block);
void copy_back(Engine& engine, Run tensor, ConstRun room,
               const Blocking& blocking, const TensorBlock& block);

}  // namespace canzona
