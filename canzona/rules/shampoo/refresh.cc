#include "canzona/rules/shampoo/refresh.h"

#include "canzona/base/text.h"
#include "canzona/rules/convert.h"
#include "canzona/rules/shampoo/roots.h"

namespace canzona {
namespace {

constexpr int kMostFailures = 3;

Matrices as_matrix(Run number) {
  return {number.data, number.dtype, 1, 1, 1, 1, 1};
}

[[noreturn]] void give_up(const Refresh& refresh, const std::string& what) {
  const Part& part = refresh.part;
  throw NumericalError(cat("shampoo, step ", refresh.step, ": ", what,
                           ": axis ", part.axis, ", block ", part.block,
                           ", tensor ", part.tensor, " of the batch"));
}

bool finite(Engine& engine, ConstMatrices a) {
  return engine.all_finite({a.data, a.dtype}, a.elements());
}

RootStatus root_in_fp64(Engine& engine, Matrices x, ConstMatrices a,
                        InversePower power, const RootOptions& options) {
  const Arena::Scope scope(engine.arena());
  const int64_t d = a.rows;
  const Matrices wide_a = engine.arena().matrices(DType::kFp64, d, d);
  const Matrices wide_x = engine.arena().matrices(DType::kFp64, d, d);
  convert(wide_a, a);
  const RootStatus status =
      inverse_root(engine, wide_x, wide_a, power, options);
  if (status.succeeded) convert(x, wide_x);
  return status;
}

// Whether there is a root that the hook does not refuse.
bool accepted(RootStatus& status, Matrices x, const Refresh& refresh,
              DecompositionHook* hook) {
  if (status.succeeded && hook != nullptr &&
      !hook->inverse_root(refresh.part, x))
    status = {.succeeded = false, .reason = "refused by a check"};
  return status.succeeded;
}

void count_failure(const Refresh& refresh, const char* reason) {
  double failures = 0;
  convert(matrices(&failures, 1, 1), as_matrix(refresh.failures));
  ++failures;
  convert(as_matrix(refresh.failures), matrices(&failures, 1, 1));
  if (failures > kMostFailures)
    give_up(refresh,
            cat(failures, " failures in a row (", reason, ") to find a root"));
}

}  // namespace

void refresh_root(Engine& engine, const Refresh& refresh,
                  const RootOptions& options, DecompositionHook* hook) {
  const Arena::Scope scope(engine.arena());
  const int64_t d = refresh.factor.rows;
  const DType dtype = refresh.factor.dtype;
  const Matrices a = engine.arena().matrices(dtype, d, d);
  const Matrices x = engine.arena().matrices(dtype, d, d);
  engine.axpby(a, 1 / refresh.correction, refresh.factor, 0.0);
  if (!finite(engine, a)) give_up(refresh, "a factor that is not finite");

  RootStatus status = inverse_root(engine, x, a, refresh.power, options);
  if (!accepted(status, x, refresh, hook) && dtype == DType::kFp32) {
    status = root_in_fp64(engine, x, a, refresh.power, options);
    accepted(status, x, refresh, hook);
  }
  if (!status.succeeded) return count_failure(refresh, status.reason);
  if (!finite(engine, x)) give_up(refresh, "a root that is not finite");
  engine.copy(refresh.root, x);
  const double none = 0;
  convert(as_matrix(refresh.failures), matrices(&none, 1, 1));
}

}  // namespace canzona
