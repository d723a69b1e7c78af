#include "canzona/rules/initial_states.h"

#include <algorithm>

#include "canzona/rules/runs.h"

namespace canzona {

void fill_initially(Engine& engine, const StateFact& fact, Run run,
                    int64_t tensors) {
  const int64_t elements = tensors * fact.elements();
  engine.set_zero(run.data, elements * size_of(run.dtype));
  if (fact.initially == Initially::kZero || elements == 0) return;
  const int64_t d = fact.shape.back();
  const int64_t most = engine.batch_width();
  const int64_t squares = elements / (d * d);
  for (int64_t i = 0; i < squares; i += most)
    engine.set_identity(as_matrices(advanced(run, i * d * d), d, d,
                                    std::min(most, squares - i)),
                        1.0);
}

}  // namespace canzona
