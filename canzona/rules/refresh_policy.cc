#include "canzona/rules/refresh_policy.h"

#include "canzona/base/text.h"
#include "canzona/rules/convert.h"

namespace canzona {
namespace {

constexpr double kMostFailures = 3;

[[noreturn]] void give_up(const RefreshSite& site, const std::string& what) {
  const FactorId& part = site.part;
  throw NumericalError(cat("rule ", site.rule, ", step ", site.step, ": ", what,
                           ": axis ", part.axis, ", block ", part.block,
                           ", tensor ", part.tensor, " of the batch"));
}

double failures_so_far(const RefreshSite& site) {
  double failures = 0;
  convert(matrices(&failures, 1, 1), site.failures);
  return failures;
}

}  // namespace

void require_finite(Engine& engine, const RefreshSite& site,
                    std::string_view what, ConstMatrices matrix) {
  if (!engine.all_finite({matrix.data, matrix.dtype}, matrix.elements()))
    give_up(site, cat("a ", what, " that is not finite"));
}

void count_failure(Engine& engine, const RefreshSite& site,
                   std::string_view reason) {
  const double failures = failures_so_far(site) + 1;
  engine.set_identity(site.failures, failures);
  if (failures > kMostFailures)
    give_up(site, cat(failures, " failures in a row to find a ", site.result,
                      " (", reason, ")"));
}

void forget_failures(Engine& engine, const RefreshSite& site) {
  if (failures_so_far(site) != 0) engine.set_identity(site.failures, 0);
}

}  // namespace canzona
