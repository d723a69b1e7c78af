#include "canzona/sim/search_reason.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "canzona/base/text.h"

namespace canzona {
namespace {

// Prints two significant digits, never in powers of ten.
std::string short_number(double number) {
  const int digits = number >= 9.95 ? 0 : number >= 0.095 ? 1 : 3;
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

std::string slower_by(double seconds, double best) {
  const double ratio = best > 0 ? seconds / best : 1;
  if (ratio >= 2) return cat(short_number(ratio), "x as long as ");
  const double percent = std::max(0.001, 100 * (ratio - 1));
  return cat(short_number(percent), " % slower than ");
}

std::string more_bytes(int64_t bytes, int64_t best, const char* links) {
  if (best == 0)
    return cat(human_bytes(bytes), " over ", links, " links, that one none");
  return cat(
      short_number(static_cast<double>(bytes) / static_cast<double>(best)),
      "x its ", links, " bytes");
}

bool is_clearly_more(double a, double b) { return a > 1.01 * b; }

// Names what the choice has more of; the most expensive comes first.
std::string cause(const ZeroWeight& weight, const ZeroWeight& best) {
  const double late = weight.seconds - best.seconds;
  const double step = weight.step_seconds - best.step_seconds;
  if (step > late / 2) {
    if (best.step_seconds == 0) return "its step takes the time";
    return cat("its step takes ",
               short_number(weight.step_seconds / best.step_seconds),
               "x the time");
  }
  const auto more = [&](int64_t ZeroWeight::*bytes) {
    return is_clearly_more(static_cast<double>(weight.*bytes),
                           static_cast<double>(best.*bytes));
  };
  if (more(&ZeroWeight::slow_bytes))
    return more_bytes(weight.slow_bytes, best.slow_bytes, "slow");
  if (more(&ZeroWeight::fast_bytes))
    return more_bytes(weight.fast_bytes, best.fast_bytes, "fast");
  return "less of it is hidden";
}

std::string tie_reason(const ZeroWeight& weight, const ZeroWeight& best) {
  if (weight.slow_bytes != best.slow_bytes)
    return more_bytes(weight.slow_bytes, best.slow_bytes, "slow");
  if (weight.memory_bytes != best.memory_bytes)
    return cat(human_bytes(weight.memory_bytes - best.memory_bytes),
               " more memory");
  return "larger groups for nothing";
}

std::string reason_to_take(const ZeroSearch& search) {
  const auto fits = std::ranges::count(search.ranking, ZeroVerdict::kFits,
                                       &RankedZero::verdict);
  if (fits == 1 && search.ranking.size() == 1) return "the only choice";
  if (fits == 1) return "the only one that fits";
  return cat("the fastest of ", fits);
}

}  // namespace

std::string choice_name(const ZeroChoice& choice, const ZeroSearch& search) {
  const bool alike =
      std::ranges::all_of(search.ranking, [&](const RankedZero& r) {
        return r.choice.strategy == choice.strategy;
      });
  std::string name = to_string(choice.sizes);
  if (choice.experts.z1 > 0)
    name += cat(" experts ", to_string(choice.experts));
  return alike ? name : cat(name, " ", choice.strategy);
}

std::string reason_for(const RankedZero& ranked, const ZeroSearch& search) {
  const ZeroWeight& weight = ranked.weight;
  if (ranked.verdict == ZeroVerdict::kRefused) return weight.refusal;
  if (ranked.verdict == ZeroVerdict::kOverCap)
    return cat("needs ",
               human_bytes(weight.memory_bytes - search.memory_cap_bytes),
               " more than the cap of ", human_bytes(search.memory_cap_bytes));
  const RankedZero& best = search.ranking.front();
  if (ranked.choice == best.choice) return reason_to_take(search);
  const std::string name = choice_name(best.choice, search);
  if (weight.seconds <= best.weight.seconds * (1 + kEqualTimes) &&
      best.weight.seconds <= weight.seconds * (1 + kEqualTimes))
    return cat("as fast as ", name, ": ", tie_reason(weight, best.weight));
  return cat(slower_by(weight.seconds, best.weight.seconds), name, ": ",
             cause(weight, best.weight));
}

std::string brief_reason(const RankedZero& ranked, const ZeroSearch& search) {
  if (ranked.verdict == ZeroVerdict::kOverCap)
    return cat(
        human_bytes(ranked.weight.memory_bytes - search.memory_cap_bytes),
        " over the cap");
  std::string text = ranked.reason;
  const std::string best = choice_name(search.ranking.front().choice, search);
  for (const std::string& word : {cat(" than ", best), cat(" as ", best)})
    if (const size_t at = text.find(word); at != std::string::npos)
      text.erase(at, word.size());
  return text;
}

}  // namespace canzona
