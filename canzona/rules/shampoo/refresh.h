// A new inverse root for one factor, and what happens if there is none.
//
// A factor that is not finite ends the run: a NumericalError that names step,
// block and axis. A root that cannot be computed is tried again in fp64; if
// that fails too, the old root stays and the failure is counted. A success
// sets the count back to zero, the fourth failure in a row is an error. So is a
// root that is not finite.
#pragma once

#include "canzona/linalg/engine.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/shampoo/root_options.h"

namespace canzona {

struct Refresh {
  Part part;
  int64_t step = 0;
  ConstMatrices factor;
  double correction = 1;  // the factor is divided by this
  InversePower power;
  Matrices root;
  // How often in a row this factor's refresh failed: one number of the
  // factor's type.
  Run failures;
};

void refresh_root(Engine& engine, const Refresh& refresh,
                  const RootOptions& options, DecompositionHook* hook);

}  // namespace canzona
