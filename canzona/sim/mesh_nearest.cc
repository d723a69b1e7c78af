// The layout that is nearest if nothing fits, and what to change.
#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/sim/mesh_layout.h"
#include "canzona/sim/mesh_rooms.h"

namespace canzona {
namespace {

// A question that may have a layout that fits.
struct Change {
  std::string what;  // "recomputing activations"
  MeshQuestion question;
};

// The changes that cost little time come first.
std::vector<Change> changes_of(const MeshQuestion& question) {
  std::vector<Change> changes;
  const auto add = [&](const std::string& what, auto change) {
    MeshQuestion changed = question;
    change(changed.limits);
    if (changed.limits != question.limits) changes.push_back({what, changed});
  };
  const int64_t length = question.work.compute.length;
  add(cat("micro-batches of ", counted_text(length, "token")),
      [&](MeshLimits& limits) {
        if (limits.tokens) limits.tokens = std::min(*limits.tokens, length);
      });
  add("other sizes of ZeRO", [](MeshLimits& limits) {
    limits.no_zero = limits.no_hierarchical = false;
    limits.zero = limits.zero_experts = "";
  });
  add("recomputing activations", [](MeshLimits& limits) {
    limits.recompute = std::nullopt;
    limits.no_recompute = false;
  });
  add("other meshes", [](MeshLimits& limits) {
    limits.dp = limits.tp = limits.pp = limits.ep = std::nullopt;
    limits.no_tp = limits.no_pp = limits.no_ep = false;
  });
  add("nothing fixed or forbidden",
      [](MeshLimits& limits) { limits = MeshLimits(); });
  for (int32_t ranks = question.ranks; ranks <= kMaxWorld / 2;) {
    ranks *= 2;
    changes.push_back({counted_text(ranks, "rank"), question});
    changes.back().question.ranks = ranks;
  }
  return changes;
}

// Plans the layouts of some meshes that need least by their bounds, and returns
// the one that does need least.
std::optional<WeighedMesh> planned_least(const MeshQuestion& question,
                                         const MeshRooms& rooms) {
  constexpr size_t kMostPlans = 6;
  std::vector<MeshRooms::Least> all = rooms.least_memory();
  all.resize(std::min(all.size(), kMostPlans));
  std::optional<WeighedMesh> least;
  for (const MeshRooms::Least& one : all) {
    if (least && least->memory_bytes() <= one.bytes) break;
    try {
      const WeighedMesh planned = weigh_mesh(question, one.choice);
      if (!least || planned.memory_bytes() < least->memory_bytes())
        least = planned;
    } catch (const UsageError&) {
      // This strategy cannot plan it.
    }
  }
  return least;
}

}  // namespace

NearestMesh nearest_mesh(const MeshQuestion& question, const MeshRooms& rooms,
                         const std::optional<WeighedMesh>& planned,
                         const std::function<bool(const MeshQuestion&)>&
                             finds_any) {
  const int64_t cap = question.options.memory_cap_bytes;
  const MeshRooms::Least least = rooms.least_memory().front();
  NearestMesh nearest{least.choice, least.bytes - cap};
  std::optional<WeighedMesh> closest = planned_least(question, rooms);
  if (!closest ||
      (planned && planned->memory_bytes() < closest->memory_bytes()))
    closest = planned;
  if (closest) nearest = {closest->choice, closest->memory_bytes() - cap};
  for (const Change& change : changes_of(question))
    if (finds_any(change.question)) {
      nearest.cure = change.what;
      return nearest;
    }
  const int64_t needed = cap + nearest.lacks_bytes;
  nearest.cure =
      cat("--memory-cap ", needed, " (", human_bytes(needed), ")");
  return nearest;
}

}  // namespace canzona
