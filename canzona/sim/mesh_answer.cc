#include <algorithm>
#include <cmath>

#include "canzona/base/text.h"
#include "canzona/sim/mesh_search.h"

namespace canzona {
namespace {

std::string percent(double share) {
  const double points = 100 * share;
  return points < 9.95 ? cat(std::round(10 * points) / 10, " %")
                       : cat(std::round(points), " %");
}

// What a layout spends more time on than the best, as shares of the best time,
// the largest first.
std::string causes_of(const WeighedMesh& weighed, const WeighedMesh& best) {
  const MeshTimeParts &own = weighed.parts, &other = best.parts;
  std::vector<std::pair<double, const char*>> parts{
      {own.compute - other.compute,
       weighed.choice.recompute && !best.choice.recompute ? "recomputation"
                                                          : "compute"},
      {own.bubble - other.bubble, "bubble"},
      {own.exposed() - other.exposed(), "exposed communication"},
      {own.step - other.step, "step"}};
  std::ranges::stable_sort(parts, std::greater(),
                           [](const auto& part) { return part.first; });
  constexpr double kLeast = 0.001;
  std::vector<std::string> words;
  for (const auto& [seconds, name] : parts)
    if (seconds > kLeast * best.seconds())
      words.push_back(cat(name, " ", percent(seconds / best.seconds())));
  return join(words, ", ");
}

}  // namespace

void give_reasons(MeshAnswer& answer) {
  if (!answer.is_found()) return;
  const WeighedMesh& best = answer.best();
  for (RankedMesh& row : answer.kinds) {
    if (&row == &answer.kinds.front()) {
      row.reason = answer.proven ? "no layout of the space is faster"
                                 : cat("no layout of the space is more than ",
                                       percent(answer.gap), " faster");
      continue;
    }
    const double slower = row.weighed.seconds() / best.seconds() - 1;
    const std::string causes = causes_of(row.weighed, best);
    row.reason = cat(percent(slower), " slower",
                     causes.empty() ? "" : cat(": ", causes));
  }
}

std::string MeshAnswer::summary() const {
  if (is_found())
    return cat(to_string(best().choice), ": ", kinds.front().reason, " (",
               counts.in_space, " layouts, ", counts.simulated, " simulated)");
  if (!nearest) return "no layout can be planned";
  return cat("no layout fits; the nearest is ", to_string(nearest->choice),
             ", which lacks ", human_bytes(nearest->lacks_bytes),
             nearest->cure.empty() ? "" : cat("; try ", nearest->cure));
}

}  // namespace canzona
