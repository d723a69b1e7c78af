// What the best layout would be if the cluster or the batch were otherwise, and
// what it costs to keep the one that is best today.
//
//   for (const MeshChange& change : mesh_changes(question, answer.best()))
//     if (change.best) show(change.what, *change.best, change.kept_loses());
//
// Each is a search of its own, with one number of the question changed. Pure,
// and deterministic.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "canzona/sim/mesh_search.h"

namespace canzona::sim {

struct MeshChange {
  std::string what;                      // "links half as fast"
  std::optional<WeighedMesh> best = {};  // none: nothing fits
  std::optional<WeighedMesh> kept = {};  // none: it is not possible
  std::string why_none = {};             // why one of them is missing

  bool keeps() const { return best && kept && best->choice == kept->choice; }
  // How much longer an iteration of the kept layout takes, as a fraction of the
  // best one's. Requires both.
  double kept_loses() const { return kept->seconds() / best->seconds() - 1; }
};

// Links half as fast, 10 % less memory (if there is a cap), and half the batch.
std::vector<MeshChange> mesh_changes(const MeshQuestion& question,
                                     const WeighedMesh& best);

}  // namespace canzona::sim
