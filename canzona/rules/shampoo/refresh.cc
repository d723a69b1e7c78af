#include "canzona/rules/shampoo/refresh.h"

#include <algorithm>
#include <cmath>

#include "canzona/rules/host_copy.h"
#include "canzona/rules/shampoo/roots.h"
#include "canzona/rules/typed_copy.h"

namespace canzona {
namespace {

// Roots of the site's factors from number `first` on.
void ask_hook(Engine& engine, DecompositionHook& hook, const RefreshSite& site,
              int64_t first, Matrices roots, std::span<Outcome> outcomes) {
  for_each_success(outcomes, [&](int64_t begin, int64_t size) {
    for (int64_t i = begin; i < begin + size; ++i) {
      HostCopy root(engine, roots.at(i));
      if (hook.inverse_root(site.factor(first + i), root.view()))
        root.put_back();
      else
        outcomes[static_cast<size_t>(i)] = {false, "refused by a check"};
    }
  });
}

// What factors are multiplied by before a root is taken.
PerTensor<double> factor_scales(Engine& engine, const RootRefresh& task,
                                double least_trace) {
  PerTensor<double> scales(task.factor.count, 1 / task.correction);
  if (!task.scales_by_trace) return scales;
  PerTensor<double> traces(task.factor.count);
  engine.traces(task.factor, traces.span());
  for (int64_t i = 0; i < task.factor.count; ++i) {
    const double trace = std::max(traces[i] * scales[i], least_trace);
    if (trace != 0) scales[i] /= std::sqrt(trace);
  }
  return scales;
}

// In `dtype`, given in the roots' type.
void find_roots(Engine& engine, Matrices roots, ConstMatrices factors,
                DType dtype, InversePower power, const RootOptions& options,
                std::span<Outcome> outcomes) {
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  const int64_t d = factors.rows;
  const ConstMatrices a = in_type(engine, factors, dtype);
  const bool other = dtype != roots.dtype;
  const Matrices x = other ? arena.matrices(dtype, d, d, a.count) : roots;
  PerTensor<RootStatus> statuses(a.count);
  inverse_roots(engine, x, a, power, options, statuses.span());
  for (int64_t i = 0; i < a.count; ++i)
    outcomes[static_cast<size_t>(i)] = {statuses[i].succeeded,
                                        statuses[i].reason};
  if (!other) return;
  for_each_success(outcomes, [&](int64_t begin, int64_t size) {
    engine.convert(roots.part(begin, size), x.part(begin, size));
  });
}

}  // namespace

void refresh_roots(Engine& engine, const RootRefresh& task,
                   const RootOptions& options, DecompositionHook* hook) {
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  const int64_t d = task.factor.rows;
  const int64_t count = task.factor.count;
  const Matrices factors = arena.matrices(task.factor.dtype, d, d, count);
  const Matrices roots = arena.matrices(task.factor.dtype, d, d, count);
  engine.axpby(factors, factor_scales(engine, task, options.epsilon).span(),
               task.factor, 0.0);

  PerTensor<Outcome> outcomes(count);
  refresh(engine, task.site, factors, roots, outcomes.span(),
          [&](DType dtype, int64_t begin, std::span<Outcome> tried) {
            const int64_t size = std::ssize(tried);
            const Matrices some = roots.part(begin, size);
            find_roots(engine, some, factors.part(begin, size), dtype,
                       task.power, options, tried);
            if (hook != nullptr)
              ask_hook(engine, *hook, task.site, begin, some, tried);
          });
  for_each_success(outcomes.span(), [&](int64_t begin, int64_t size) {
    engine.copy(task.root.part(begin, size), roots.part(begin, size));
  });
}

}  // namespace canzona
