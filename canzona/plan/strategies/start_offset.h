// A tensor belongs to the rank whose even slice of the bucket holds its first
// element.
#pragma once

#include "canzona/plan/strategy.h"

namespace canzona {

void assign_start_offset(const Problem& p, Assignment& a);

}  // namespace canzona
