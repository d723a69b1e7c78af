// Tensors put together on rank 0 from the shards of all ranks.
//
//   gather_whole(world, runtime, tensor, [&](std::span<const float> whole)
//   {…});
#pragma once

#include <functional>
#include <span>

#include "canzona/runtime/runtime.h"

namespace canzona {

// All ranks call it for the same tensor; `use` is called on rank 0 alone.
void gather_whole(Communicator& world, Runtime& runtime, int32_t tensor,
                  const std::function<void(std::span<const float>)>& use);

}  // namespace canzona
