// Refreshes of factors, the same for every rule that decomposes: what happens
// when a decomposition fails, and what an owner and its helper (facts.h) have
// in common.
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

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "canzona/base/check.h"
#include "canzona/linalg/engine.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/strips.h"
#include "canzona/rules/together.h"

namespace canzona::rules {

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

// The transform of an owner and its helper: one segment, no norms, a triangle
// for the helper.
class HelpedTransform : public SharedTransform {
 public:
  // The helper takes a factor of this side. The engine must outlive the
  // transform.
  HelpedTransform(Engine& engine, int64_t side, DType dtype)
      : engine_(engine), side_(side), dtype_(dtype) {}

  int segments() const override { return 1; }
  int64_t part_bytes() const override { return 0; }
  int64_t sum_elements() const override { return side_ * (side_ + 1) / 2; }
  int64_t bytes_per_sum() const override { return size_of(dtype_); }
  int64_t bytes_per_rounded() const override { return size_of(dtype_); }

  void begin(const SharedStep& step) override {
    CANZONA_CHECK(step.states.size() <= kept_.size(), step.states.size(),
                  " states");
    std::ranges::copy(step.states, kept_.begin());
    step_ = step;
    step_.states = {kept_.data(), step.states.size()};
  }
  void load(ConstRun piece, std::byte*) override { piece_ = piece; }
  bool normalize(const std::byte*, std::byte*) override { return true; }
  void round(int, const std::byte*, int64_t, std::byte*) override {
    CANZONA_CHECK(false, "a sum of one rank is not rounded");
  }

 protected:
  Run state(int number) const {
    return step_.states[static_cast<size_t>(number)];
  }

  Engine& engine_;
  const int64_t side_;
  const DType dtype_;
  // These belong to the current step.
  SharedStep step_;
  ConstRun piece_{};

 private:
  std::array<Run, 10> kept_{};
};

// True if a seat is that of an owner, and not of its helper.
inline bool is_owner(const TeamSeat& seat) {
  CANZONA_CHECK(seat.members == 2 && seat.head == (seat.member == 0), "member ",
                seat.member, " of ", seat.members, ", an owner and a helper");
  return seat.head;
}

}  // namespace canzona::rules
