#include "canzona/report/runs/comparison.h"

#include <cmath>
#include <map>

namespace canzona {
namespace {

double ratio_of(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

std::optional<Reached> reached_by(const TrainingRun& run,
                                  const TrainingRun& base, double target) {
  const StepMetrics* step = first_below(run, target);
  const StepMetrics* own = first_below(base, target);
  if (!std::isfinite(target) || step == nullptr) return std::nullopt;
  Reached out{step->step, step->tokens, step->seconds};
  if (own == nullptr) return out;
  out.steps_ratio =
      ratio_of(static_cast<double>(step->step), static_cast<double>(own->step));
  out.tokens_ratio = ratio_of(static_cast<double>(step->tokens),
                              static_cast<double>(own->tokens));
  out.seconds_ratio = ratio_of(step->seconds, own->seconds);
  return out;
}

}  // namespace

ComparedRuns compare_runs(const std::vector<TrainingRun>& runs,
                          size_t baseline) {
  ComparedRuns out{runs, baseline, runs[baseline].eval_loss(), {}, {}};
  std::map<std::string, std::string> letters;
  for (const TrainingRun& run : runs) {
    out.reached.push_back(reached_by(run, runs[baseline], out.target));
    if (run.digest().empty()) {
      out.letters.emplace_back();
      continue;
    }
    const char next = static_cast<char>('A' + letters.size());
    out.letters.push_back(
        letters.emplace(run.digest(), std::string(1, next)).first->second);
  }
  return out;
}

}  // namespace canzona
