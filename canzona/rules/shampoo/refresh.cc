#include "canzona/rules/shampoo/refresh.h"

#include "canzona/rules/convert.h"
#include "canzona/rules/shampoo/roots.h"

namespace canzona {

void refresh_root(Engine& engine, const RootRefresh& task,
                  const RootOptions& options, DecompositionHook* hook) {
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  const int64_t d = task.factor.rows;
  const DType own = task.factor.dtype;
  const Matrices factor = arena.matrices(own, d, d);
  engine.axpby(factor, 1 / task.correction, task.factor, 0.0);

  const auto find_root = [&](DType dtype) -> Decomposition {
    const Matrices x = arena.matrices(dtype, d, d);
    const ConstMatrices a = converted(arena, factor, dtype);
    const RootStatus status = inverse_root(engine, x, a, task.power, options);
    if (!status.succeeded) return {.reason = status.reason};
    const Matrices root = converted(arena, x, own);
    if (hook != nullptr && !hook->inverse_root(task.site.part, root))
      return {.reason = "refused by a check"};
    return {.succeeded = true, .result = root};
  };
  const Decomposition found = refresh(engine, task.site, factor, find_root);
  if (found.succeeded) engine.copy(task.root, found.result);
}

}  // namespace canzona
