// Sizes of hierarchical ZeRO on a given mesh, with given micro-batches: those
// that a user names, side by side, or the fastest of all (mesh_search.h).
//
//   ZeroRanking all = rank_sizes(request, work, {sizes, …});
//   ZeroRanking found = search_sizes(request, work, {.dense = true});
//   if (found.answer.is_found()) take_best(found, request.options);
//
// Rows that fit come first, the fastest first; then those over the memory cap,
// the closest first; then those that cannot be planned. Rows within kEqualTimes
// of each other are ordered by fewer bytes over slow links, then less memory,
// then smaller sizes. Memory that a rank needs beside its plan is not part of
// any plan: the terms (activations.h) say what is compared with the request's
// cap. All functions are pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "canzona/sim/mesh_search.h"

namespace canzona::sim {

struct ZeroRanking {
  std::string model;
  Mesh mesh;
  std::string rule;
  std::string strategy;             // all of them, joined
  bool several_strategies = false;  // rows must name theirs
  PlanOptions options = {};         // of the request
  Workload work = {};
  std::string rates = {};  // the source of times, if not the options
  std::vector<std::string> gaps = {};     // known_gaps() of the predictions
  std::optional<MemoryTerms> terms = {};  // if memory was counted in terms
  MeshAnswer answer = {};

  const std::vector<RankedMesh>& rows() const { return answer.kinds; }
  // Tokens of an iteration, the same for all rows; 0 if compute is not counted.
  double global_batch() const;
  // True if any row cuts experts separately.
  bool has_experts() const;
};

// All combinations are ranked. Without experts or strategies, the request's are
// used.
struct ZeroChoices {
  std::vector<ZeroSizes> sizes;
  std::vector<ZeroSizes> experts = {};
  std::vector<std::string> strategies = {};
};

// Choices that cannot be planned are kept, with the reason.
ZeroRanking rank_sizes(const PlanRequest& request, const Workload& work,
                       const ZeroChoices& choices,
                       const MemoryTerms* terms = nullptr,
                       const EachOf& each = one_by_one);

// Sizes that are not searched are the request's.
struct SearchedSizes {
  bool dense = false;
  bool experts = false;
  std::vector<std::string> strategies = {};
  explicit operator bool() const { return dense || experts; }
};
// The rows are the best of each kind of ZeRO. `cost` is what a tick is worth
// here, unless it is the plan's own. Terms without a load count activations of
// every layout.
ZeroRanking search_sizes(const PlanRequest& request, const Workload& work,
                         const SearchedSizes& what,
                         const CostBasis* cost = nullptr,
                         const MemoryTerms* terms = nullptr,
                         const EachOf& each = one_by_one);

// Copies the best row into `options`; throws UsageError if nothing fits.
void take_best(const ZeroRanking& all, PlanOptions& options);

// "z1=8,z2=4,z3=4 (states over 8, gradients and parameters over 4): the fastest
// of 30", or what the nearest one lacks.
std::string summary_of(const ZeroRanking& all);

// "states over 64, gradients and parameters over 8"; what is not cut is whole.
std::string in_words(const ZeroSizes& sizes);

}  // namespace canzona::sim
