// What happens when the decomposition of a factor fails: the same for every
// rule that has one.
//
// A factor that is not finite ends the run: a NumericalError that names rule,
// step, block and axis. What cannot be computed is tried again in fp64; if that
// fails too, the old result stays in use and the failure is counted. A success
// sets the count back to zero, the fourth failure in a row is an error. So is a
// result that is not finite.
//
//   const Decomposition found = refresh(engine, site, factor, [&](DType t) {
//     …                       // in type t; the result in the factor's type
//     return Decomposition{.succeeded = true, .result = root};
//   });
//   if (found.succeeded) engine.copy(kept, found.result);
//
// The caller opens a scope of the engine's arena around it.
#pragma once

#include <cstdint>
#include <string_view>

#include "canzona/linalg/engine.h"
#include "canzona/rules/rule.h"

namespace canzona {

struct RefreshSite {
  std::string_view rule;    // for messages, as the next two
  std::string_view result;  // "basis"
  int64_t step = 0;
  FactorId part{};
  // 1 x 1: how often in a row it failed, in the factor's type.
  Matrices failures{};
};

struct Decomposition {
  bool succeeded = false;
  Matrices result{};
  const char* reason = "";  // of a failure
};

void require_finite(Engine& engine, const RefreshSite& site,
                    std::string_view what, ConstMatrices matrix);
void count_failure(Engine& engine, const RefreshSite& site,
                   std::string_view reason);
void forget_failures(Engine& engine, const RefreshSite& site);

template <class Decompose>
Decomposition refresh(Engine& engine, const RefreshSite& site,
                      ConstMatrices factor, const Decompose& decompose) {
  require_finite(engine, site, "factor", factor);
  Decomposition found = decompose(factor.dtype);
  if (!found.succeeded && factor.dtype == DType::kFp32)
    found = decompose(DType::kFp64);
  if (found.succeeded) {
    require_finite(engine, site, site.result, found.result);
    forget_failures(engine, site);
  } else {
    count_failure(engine, site, found.reason);
  }
  return found;
}

}  // namespace canzona
