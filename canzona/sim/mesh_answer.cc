#include <algorithm>
#include <cstdio>

#include "canzona/base/text.h"
#include "canzona/plan/layout/layout.h"
#include "canzona/sim/mesh_search.h"

namespace canzona::sim {
namespace {

// Prints two significant digits, never in powers of ten.
std::string short_number(double number) {
  const int digits = number >= 9.95 ? 0 : number >= 0.095 ? 1 : 3;
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

std::string percent(double share) {
  return cat(short_number(100 * share), " %");
}

std::string slower_by(double seconds, double best) {
  const double ratio = best > 0 ? seconds / best : 1;
  if (ratio >= 2) return cat(short_number(ratio), "x as long");
  return cat(percent(std::max(0.00001, ratio - 1)), " slower");
}

std::string more_bytes(int64_t bytes, int64_t best, const char* links) {
  if (best == 0)
    return cat(human_bytes(bytes), " over ", links, " links, the other none");
  return cat(
      short_number(static_cast<double>(bytes) / static_cast<double>(best)),
      "x its ", links, " bytes");
}

// Says what a layout sends more of. Uneven buckets make sums and new parameters
// wait for one home, whatever the bytes of the others.
std::string sends_more(const WeighedMesh& one, const WeighedMesh& best) {
  if (one.bucket_unevenness > kUnevenBucket &&
      one.bucket_unevenness > 2 * best.bucket_unevenness)
    return cat("uneven buckets: one rank has ",
               short_number(one.bucket_unevenness), "x its share");
  const auto is_more = [](int64_t a, int64_t b) {
    return static_cast<double>(a) > 1.01 * static_cast<double>(b);
  };
  if (is_more(one.slow_bytes, best.slow_bytes))
    return more_bytes(one.slow_bytes, best.slow_bytes, "slow");
  if (is_more(one.fast_bytes, best.fast_bytes))
    return more_bytes(one.fast_bytes, best.fast_bytes, "fast");
  return "";
}

// What a layout spends more time on than the best, as shares of the best time,
// the largest first.
std::string causes_of(const WeighedMesh& weighed, const WeighedMesh& best) {
  const MeshTimeParts &own = weighed.parts, &other = best.parts;
  constexpr const char* kExposed = "exposed communication";
  std::vector<std::pair<double, const char*>> parts{
      {own.compute - other.compute,
       weighed.choice.recompute && !best.choice.recompute ? "recomputation"
                                                          : "compute"},
      {own.bubble - other.bubble, "bubble"},
      {own.exposed() - other.exposed(), kExposed},
      {own.step - other.step, "step"}};
  std::ranges::stable_sort(parts, std::greater(),
                           [](const auto& part) { return part.first; });
  constexpr double kLeast = 0.001;
  const std::string more = sends_more(weighed, best);
  std::vector<std::string> words;
  for (const auto& [seconds, name] : parts) {
    if (seconds <= kLeast * best.seconds()) continue;
    words.push_back(cat(name, " ", percent(seconds / best.seconds())));
    if (name == kExposed && !more.empty()) words.back() += cat(" (", more, ")");
  }
  return words.empty() ? more : join(words, ", ");
}

std::string tie_reason(const WeighedMesh& one, const WeighedMesh& best) {
  if (one.slow_bytes != best.slow_bytes)
    return more_bytes(one.slow_bytes, best.slow_bytes, "slow");
  if (one.memory_bytes() != best.memory_bytes())
    return cat(human_bytes(one.memory_bytes() - best.memory_bytes()),
               " more memory");
  return "larger groups without a benefit";
}

std::string reason_to_take(const MeshAnswer& answer) {
  if (!answer.proven)
    return cat("no layout of the space is more than ", percent(answer.gap),
               " faster");
  const int64_t fit = answer.counts.in_space - answer.counts.over_cap;
  if (fit > 1) return cat("the fastest of ", fit);
  return answer.counts.in_space == 1 ? "the only choice"
                                     : "the only one that fits";
}

std::string reason_to_lose(const RankedMesh& row, const WeighedMesh& best) {
  const WeighedMesh& own = row.weighed;
  if (own.seconds() <= best.seconds() * (1 + kEqualTimes))
    return cat("as fast: ", tie_reason(own, best));
  const std::string causes = causes_of(own, best);
  return cat(slower_by(own.seconds(), best.seconds()),
             causes.empty() ? "" : cat(": ", causes));
}

}  // namespace

void give_reasons(MeshAnswer& answer, int64_t memory_cap_bytes) {
  for (RankedMesh& row : answer.kinds)
    if (row.verdict == MeshVerdict::kOverCap)
      row.reason = cat(row.is_planned() ? "" : "at least ",
                       human_bytes(row.memory_bytes() - memory_cap_bytes),
                       " over the cap");
    else if (&row == &answer.kinds.front() && row.fits())
      row.reason = reason_to_take(answer);
    else if (row.fits())
      row.reason = reason_to_lose(row, answer.best());
}

std::string MeshAnswer::summary() const {
  if (is_found())
    return cat(to_string(best().choice), ": ", kinds.front().reason, " (",
               counts.in_space, " layouts, ", counts.simulated, " simulated)");
  if (!nearest) return cat("no layout can be planned: ", refusal);
  return cat("no layout fits in ", human_bytes(nearest->cap_bytes),
             "; the nearest is ", to_string(nearest->choice), ", which lacks ",
             human_bytes(nearest->lacks_bytes),
             nearest->cure.empty() ? "" : cat("; try ", nearest->cure));
}

}  // namespace canzona::sim
