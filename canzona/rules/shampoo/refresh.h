// New inverse roots for factors of one axis; or the old one and a failure
// counted, as refresh_policy.h says. At most kMostTogether.
#pragma once

#include "canzona/linalg/engine.h"
#include "canzona/rules/refresh_policy.h"
#include "canzona/rules/shampoo/options.h"

namespace canzona {

struct RootRefresh {
  RefreshSite site;
  ConstMatrices factor;
  double correction = 1;  // factors are divided by this
  // … and by the root of their trace then, at least the root's epsilon.
  bool scales_by_trace = false;
  InversePower power;
  Matrices root;
};

void refresh_roots(Engine& engine, const RootRefresh& task,
                   const RootOptions& options, DecompositionHook* hook);

}  // namespace canzona
