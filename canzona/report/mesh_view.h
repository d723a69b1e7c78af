// The mesh that was searched for, beside the best of each kind: why it is
// taken, what the others lose, and how to run it; as a document and as a page.
//
//   ShownMeshes shown{.question = question, .answer = search_meshes(question),
//                     .rates = "…", .commands = mesh_commands(…)};
//   Document view = mesh_view(shown);
//   std::string page = mesh_html(shown);
//
// The answer must have found a mesh. Every number is predicted.
#pragma once

#include <string>
#include <vector>

#include "canzona/report/document.h"
#include "canzona/report/mesh_commands.h"
#include "canzona/sim/mesh_changes.h"
#include "canzona/sim/mesh_search.h"

namespace canzona::report {

struct ShownMeshes {
  const MeshQuestion& question;
  const MeshAnswer& answer;
  // The numbers stand on these: rates of cards and links with their sources,
  // and what is known to be off.
  std::vector<std::string> inputs;
  std::vector<MeshChange> changes = {};
  std::vector<MeshCommand> commands = {};
};

// Memory of a layout by kind; all have the same kinds in the same order.
struct MemoryPart {
  std::string name;
  int64_t bytes = 0;
};
std::vector<MemoryPart> memory_of(const WeighedMesh& mesh);

// The choice in detail, then the others in a line each, what would change, and
// the commands. docs/mesh.md describes the members.
Document mesh_view(const ShownMeshes& shown);
// The kinds side by side, with the parts of their time and memory.
Document meshes_view(const ShownMeshes& shown);
// Returns the page that draws either (page.h).
std::string mesh_html(const ShownMeshes& shown);

}  // namespace canzona::report
