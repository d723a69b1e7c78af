// What happens when the decomposition of a factor fails; the same for every
// rule that decomposes.
//
// A factor that is not finite ends the run with a NumericalError that names
// rule, step, tensor, block and axis. A decomposition that fails is retried in
// fp64; if that fails too, the old result stays in use and the failure is
// counted. A success resets the count; the fourth failure in a row is an error.
// So is a result that is not finite.
//
//   refresh(engine, site, factors, results, outcomes.span(),
//           [&](DType dtype, int64_t begin, std::span<Outcome> tried) {
//             …   // outcomes of the factors from `begin` on, in that type
//           });
//   for_each_success(outcomes.span(), [&](int64_t begin, int64_t size) {
//     engine.copy(kept.part(begin, size), results.part(begin, size));
//   });
//
// The factors belong to one axis of the tensors of a batch: to one block, or to
// several blocks of equal length. The caller opens a scope of the engine's
// arena around the call.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "canzona/linalg/engine.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/together.h"

namespace canzona {

inline FactorId part_of(const FactorId& first, int64_t place) {
  return {first.tensor + place, first.block, first.axis};
}

struct RefreshSite {
  std::string_view rule;    // for messages, like the next two
  std::string_view result;  // "basis"
  int64_t step = 0;
  FactorId part{};  // of the first factor; the others' tensors follow
  // Non-empty: the factors belong to these blocks of each tensor.
  std::span<const int64_t> blocks{};
  // 1 x 1 each: consecutive failures, in the factors' type.
  Matrices failures{};
  int64_t begin = 0;  // offset added to every place

  FactorId factor(int64_t place) const {
    place += begin;
    if (blocks.empty()) return part_of(part, place);
    const auto each = std::ssize(blocks);
    return {part.tensor + place / each,
            blocks[static_cast<size_t>(place % each)], part.axis};
  }
};

// The outcome for one factor.
struct Outcome {
  bool succeeded = false;
  const char* reason = "";  // of a failure
};

template <class Work>
void for_each_success(std::span<const Outcome> outcomes, const Work& work) {
  for_each_run(
      std::ssize(outcomes),
      [&](int64_t i) { return outcomes[static_cast<size_t>(i)].succeeded; },
      work);
}

void require_finite(Engine& engine, const RefreshSite& site,
                    std::string_view what, ConstMatrices matrices);
void require_finite_successes(Engine& engine, const RefreshSite& site,
                              ConstMatrices results,
                              std::span<const Outcome> outcomes);
void count_failures(Engine& engine, const RefreshSite& site,
                    std::span<const Outcome> outcomes);

// Retries failures of fp32 factors in fp64. `decompose` fills in outcomes and,
// on success, results, which are in the factors' type.
template <class Decompose>
void refresh(Engine& engine, const RefreshSite& site, ConstMatrices factors,
             ConstMatrices results, std::span<Outcome> outcomes,
             const Decompose& decompose) {
  require_finite(engine, site, "factor", factors);
  decompose(factors.dtype, 0, outcomes);
  if (factors.dtype == DType::kFp32)
    for (size_t i = 0; i < outcomes.size(); ++i)
      if (!outcomes[i].succeeded)
        decompose(DType::kFp64, static_cast<int64_t>(i),
                  outcomes.subspan(i, 1));
  require_finite_successes(engine, site, results, outcomes);
  count_failures(engine, site, outcomes);
}

}  // namespace canzona
