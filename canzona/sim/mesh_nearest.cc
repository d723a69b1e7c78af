// The layout that is nearest if nothing fits, and what to change.
#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/sim/mesh_layout.h"
#include "canzona/sim/mesh_rooms.h"

namespace canzona::sim {
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
  const int64_t length = std::max<int64_t>(1, question.work.compute.length);
  add(cat("micro-batches of ", counted_text(length, "token")),
      [&](MeshLimits& limits) {
        if (limits.tokens) limits.tokens = std::min(*limits.tokens, length);
        if (auto& batch = limits.batch; batch && batch->tokens > length)
          batch = {length, batch->tokens / length * batch->num_micro_batches};
      });
  add("other sizes of ZeRO", [](MeshLimits& limits) {
    limits.no_zero = limits.no_hierarchical = false;
    limits.zero = limits.zero_experts = "";
    limits.experts_beside = false;
  });
  add("recomputing activations", [](MeshLimits& limits) {
    limits.recompute = std::nullopt;
    limits.no_recompute = false;
  });
  add("other meshes", [](MeshLimits& limits) {
    limits.dp = limits.tp = limits.pp = limits.ep = std::nullopt;
    limits.mesh.reset();
    limits.batch.reset();
    limits.no_tp = limits.no_pp = limits.no_ep = false;
  });
  add("nothing fixed or forbidden",
      [](MeshLimits& limits) { limits = MeshLimits(); });
  for (int32_t ranks = question.ranks; ranks <= kMaxWorld / 2;) {
    ranks *= 2;
    changes.push_back({counted_text(ranks, "rank"), question});
    changes.back().question.ranks = ranks;
    if (auto& mesh = changes.back().question.limits.mesh)
      mesh->dp *= ranks / question.ranks;
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

// Activations that were counted elsewhere are those of this mesh alone.
std::string cure_of(const MeshQuestion& question, int64_t lacks) {
  if (!question.activation_bytes)
    for (const Change& change : changes_of(question))
      if (const auto mesh = find_mesh_that_fits(change.question)) {
        const bool is_other = question.limits.mesh &&
                              mesh->world() == question.ranks &&
                              *mesh != *question.limits.mesh;
        return is_other ? cat(change.what, ", such as ", to_string(*mesh))
                        : change.what;
      }
  const int64_t needed = question.options.memory_cap_bytes + lacks;
  return cat("--memory-cap ", needed, " (", human_bytes(needed), ")");
}

NearestMesh nearest_mesh(const MeshQuestion& question, const MeshRooms& rooms,
                         const std::optional<WeighedMesh>& planned) {
  const int64_t cap = question.options.memory_cap_bytes;
  const MeshRooms::Least least = rooms.least_memory().front();
  NearestMesh nearest{least.choice, cap, least.bytes - cap};
  std::optional<WeighedMesh> closest = planned_least(question, rooms);
  if (!closest ||
      (planned && planned->memory_bytes() < closest->memory_bytes()))
    closest = planned;
  if (closest) nearest = {closest->choice, cap, closest->memory_bytes() - cap};
  nearest.cure = cure_of(question, nearest.lacks_bytes);
  return nearest;
}

}  // namespace canzona::sim
