#include "canzona/rules/refresh.h"

#include "canzona/base/text.h"
#include "canzona/rules/runs.h"

namespace canzona::rules {
namespace {

constexpr double kMostFailures = 3;

[[noreturn]] void give_up(const RefreshSite& site, int64_t place,
                          const std::string& what) {
  const FactorId part = site.factor(place);
  throw NumericalError(cat("rule ", site.rule, ", step ", site.step, ": ", what,
                           ": axis ", part.axis, ", block ", part.block,
                           ", tensor ", part.tensor, " of the batch"));
}

// The counters of a site, contiguous and in fp64, which holds every count
// exactly, and their transfer between the engine's memory and the host.
class Counters {
 public:
  Counters(Engine& engine, const RefreshSite& site)
      : engine_(engine),
        kept_(site.failures),
        row_(as_matrices(Run{engine.arena().take(bytes()), DType::kFp64}, 1, 1,
                         kept_.count)),
        values_(kept_.count) {
    copy_as(engine_, row_, kept_);
    engine_.download(host(), row_.data, bytes());
  }
  double& operator[](int64_t i) { return values_[i]; }
  void put_back() {
    engine_.upload(row_.data, host(), bytes());
    copy_as(engine_, kept_, row_);
  }

 private:
  int64_t bytes() const {
    return kept_.count * static_cast<int64_t>(sizeof(double));
  }
  std::byte* host() {
    return reinterpret_cast<std::byte*>(values_.span().data());
  }

  Engine& engine_;
  Matrices kept_;
  Matrices row_;
  PerTensor<double> values_;
};

}  // namespace

void require_finite(Engine& engine, const RefreshSite& site,
                    std::string_view what, ConstMatrices matrices) {
  PerTensor<bool> finite(matrices.count);
  engine.finite(matrices, finite.span());
  for (int64_t i = 0; i < matrices.count; ++i)
    if (!finite[i]) give_up(site, i, cat("a ", what, " that is not finite"));
}

void require_finite_successes(Engine& engine, const RefreshSite& site,
                              ConstMatrices results,
                              std::span<const Outcome> outcomes) {
  for_each_success(outcomes, [&](int64_t begin, int64_t size) {
    RefreshSite there = site;
    there.begin += begin;
    require_finite(engine, there, site.result, results.part(begin, size));
  });
}

void count_failures(Engine& engine, const RefreshSite& site,
                    std::span<const Outcome> outcomes) {
  const Arena::Scope scope(engine.arena());
  Counters counters(engine, site);
  bool changed = false;
  for (int64_t i = 0; i < std::ssize(outcomes); ++i) {
    const bool failed = !outcomes[static_cast<size_t>(i)].succeeded;
    changed = changed || failed || counters[i] != 0;
    counters[i] = failed ? counters[i] + 1 : 0;
  }
  if (!changed) return;
  counters.put_back();
  for (int64_t i = 0; i < std::ssize(outcomes); ++i)
    if (counters[i] > kMostFailures)
      give_up(
          site, i,
          cat(counters[i], " consecutive failures to compute a ", site.result,
              " (", outcomes[static_cast<size_t>(i)].reason, ")"));
}

}  // namespace canzona::rules
