// Between a tensor and one of its blocks, elements side by side.
#pragma once

#include "canzona/linalg/engine.h"
#include "canzona/rules/shampoo/blocks.h"

namespace canzona {

void pack(Engine& engine, Run packed, ConstRun tensor, const Blocking& blocking,
          const TensorBlock& block);
void unpack(Engine& engine, Run tensor, ConstRun packed,
            const Blocking& blocking, const TensorBlock& block);

}  // namespace canzona
