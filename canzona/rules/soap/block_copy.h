// Between a tensor and a block of it whose elements lie side by side.
#pragma once

#include "canzona/linalg/engine.h"
#include "canzona/rules/soap/layout.h"

namespace canzona {

void copy_out(Engine& engine, Run block_run, ConstRun tensor,
              const SoapLayout& layout, const SoapBlock& block);
void copy_back(Engine& engine, Run tensor, ConstRun block_run,
               const SoapLayout& layout, const SoapBlock& block);

}  // namespace canzona
