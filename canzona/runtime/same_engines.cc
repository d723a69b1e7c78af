#include "canzona/runtime/same_engines.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/comm/communicator.h"
#include "canzona/linalg/engine.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/schedule/coordinates.h"
#include "canzona/plan/schedule/team_strips.h"

namespace canzona {
namespace {

constexpr size_t kMostText = 192;  // of an engine's description

// Ranks of the world that share a matrix, once for each replica.
template <class Visit>
void each_team(const PlanPart& part, size_t matrix, const Visit& visit) {
  if (part.owners[matrix].size() < 2) return;
  for (int32_t replica = 0; replica < part.num_replicas(); ++replica) {
    std::vector<int32_t> ranks;
    each_computing_rank(part, matrix, [&](int32_t rank) {
      ranks.push_back(part.rank_in_whole(rank_in_part(part, rank, replica)));
    });
    visit(ranks);
  }
}

}  // namespace

std::string find_unlike_members(const Plan& plan,
                                const std::vector<std::string>& engines) {
  std::string found;
  for (const PlanPart& part : plan.parts)
    for (size_t m = 0; m < part.matrices.size() && found.empty(); ++m)
      each_team(part, m, [&](const std::vector<int32_t>& ranks) {
        const std::string& head = engines[index(ranks.front())];
        for (const int32_t rank : ranks) {
          const std::string& own = engines[index(rank)];
          if (own == head || !found.empty()) continue;
          const Tensor& tensor =
              part.model.tensors[index(part.matrices[m].tensor)];
          found =
              cat("matrix ", quoted(tensor.name), " is shared by ranks ",
                  ranks.front(), " and ", rank,
                  ", which compute differently: ", head, ", and ", own,
                  "; members of a team need the same device and kernels (see "
                  "OPENBLAS_CORETYPE), or plan with --teams off");
        }
      });
  return found;
}

void require_alike_members(const Plan& plan, Communicator& world,
                           const Engine& engine) {
  if (!has_teams(plan)) return;
  std::string own = cat(engine.kind(), ", ", engine.describe());
  own.resize(kMostText, ' ');
  const std::vector<int64_t> bytes(index(world.size()),
                                   static_cast<int64_t>(own.size()));
  std::string all(own.size() * bytes.size(), ' ');
  world.all_gather_v(std::as_bytes(std::span(own)), bytes,
                     std::as_writable_bytes(std::span(all)),
                     {.label = "engines of teams"});
  std::vector<std::string> engines;
  for (size_t r = 0; r < bytes.size(); ++r) {
    std::string text = all.substr(r * own.size(), own.size());
    text.erase(text.find_last_not_of(' ') + 1);
    engines.push_back(std::move(text));
  }
  if (const std::string found = find_unlike_members(plan, engines);
      !found.empty())
    throw UsageError(found);
}

}  // namespace canzona
