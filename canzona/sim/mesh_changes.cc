#include "canzona/sim/mesh_changes.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::sim {
namespace {

constexpr double kLessMemory = 0.9;

MeshQuestion with_slower_links(MeshQuestion question) {
  Links& links = question.options.links;
  links.intra_bytes_per_second /= 2;
  links.inter_bytes_per_second /= 2;
  for (LinkLevel& level : question.work.levels) level.bytes_per_second /= 2;
  return question;
}

MeshQuestion with_less_memory(MeshQuestion question) {
  int64_t& cap = question.options.memory_cap_bytes;
  cap = static_cast<int64_t>(kLessMemory * static_cast<double>(cap));
  return question;
}

MeshQuestion with_half_the_batch(MeshQuestion question) {
  question.global_batch /= 2;
  return question;
}

// Divides the question's batch as the choice does its own: micro-batches of the
// same size, or of the largest that is left.
MeshChoice divided_alike(const MeshQuestion& question, MeshChoice choice) {
  const std::vector<BatchSplit> splits =
      batch_splits(question.global_batch, question.work.compute.length,
                   choice.mesh.homes(), question.limits);
  const BatchSplit* best = nullptr;
  for (const BatchSplit& split : splits)
    if (split.tokens <= choice.tokens &&
        (best == nullptr || split.tokens > best->tokens))
      best = &split;
  if (best == nullptr)
    throw UsageError("a data-parallel rank has less than one sequence");
  choice.tokens = best->tokens;
  choice.num_micro_batches = best->num_micro_batches;
  return choice;
}

MeshChange changed(const std::string& what, const MeshQuestion& question,
                   const MeshChoice& today) {
  MeshChange change{.what = what};
  try {
    const MeshAnswer answer = search_meshes(question);
    if (answer.is_found())
      change.best = answer.best();
    else
      change.why_none = answer.summary();
    const WeighedMesh kept =
        weigh_mesh(question, divided_alike(question, today));
    if (!kept.fits) {
      change.why_none = cat(
          "today's needs ",
          human_bytes(kept.memory_bytes() - question.options.memory_cap_bytes),
          " more than the cap");
      return change;
    }
    change.kept = kept;
    // The search of a large space may have ended before it came to it.
    if (change.best && kept.seconds() < change.best->seconds())
      change.best = kept;
  } catch (const UsageError& error) {
    change.why_none = error.what();
  }
  return change;
}

}  // namespace

std::vector<MeshChange> mesh_changes(const MeshQuestion& question,
                                     const WeighedMesh& best) {
  std::vector<MeshChange> changes = {
      changed("links half as fast", with_slower_links(question), best.choice)};
  if (question.options.memory_cap_bytes > 0)
    changes.push_back(
        changed("10 % less memory", with_less_memory(question), best.choice));
  changes.push_back(
      changed("half the batch", with_half_the_batch(question), best.choice));
  return changes;
}

}  // namespace canzona::sim
