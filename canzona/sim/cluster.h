// A cluster as described by a file: cards, levels of links, and how much ranks
// differ.
//
//   Cluster cluster = Cluster::parse(read_file(path, …), path);
//   check_cluster(cluster, mesh);        // UsageError if it is too small
//   apply(cluster, options, workload);   // for planner and simulation
//
// The schema and an example are in docs/clusters.md. These are plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/mesh.h"
#include "canzona/plan/options.h"
#include "canzona/sim/workload.h"

namespace canzona::sim {

struct Card {
  std::string name;
  double flops_per_second = 0;  // achieved in forward and backward
  // The file with the costs of rules on it, as named by the description; if
  // empty, rules run at the same rate.
  std::string cost_table = {};
  friend bool operator==(const Card&, const Card&) = default;
};

struct Cluster {
  std::string name;
  Card card;
  std::vector<LinkLevel> levels;  // smallest first, at least one
  RankSpread spread = {};
  // How sums and gathers reach other nodes, unless the user chooses; if empty,
  // directly between all pairs.
  std::string collectives = {};

  // UsageError names `where`, the position and what was expected.
  static Cluster parse(std::string_view json, const std::string& where);

  int32_t ranks_per_node() const { return levels.front().ranks; }
  int32_t most_ranks() const { return levels.back().ranks; }
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

inline constexpr int32_t kFewestClusterRanks = 8;
inline constexpr int32_t kMostClusterRanks = 16384;

// Throws UsageError if the mesh has more ranks than the cluster, or is beyond
// what can be simulated.
void check_cluster(const Cluster& cluster, const Mesh& mesh);

// Sets nodes and links of a plan, and rates, links and spread of a workload.
void apply(const Cluster& cluster, PlanOptions& options, Workload& workload);

}  // namespace canzona::sim
