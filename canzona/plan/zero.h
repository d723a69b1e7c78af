// Hierarchical ZeRO: optimizer states, gradients and parameters cut over groups
// of different sizes.
//
//   ZeroSizes sizes = parse_zero("hier:4", 16);    // z1 = 16, z2 = z3 = 4
//   check_zero(sizes, 16);
//   Mesh grid = fold(mesh, sizes);
//
// The data-parallel ranks (homes) are numbered from 0; a group consists of
// consecutive homes. States are cut over z1 of them, gradients over z2,
// parameters over z3. Home r is place r mod z for z = max(z2, z3); its TP
// shards are cut by rows into z slices, one for each place. A rank keeps its
// slice and, for the smaller of z2 and z3, the neighbouring slices.
//
// Folding turns this into a mesh that the planner understands: groups of z
// homes act as dp, places x tp act as tp. Homes beyond z1 are replicas of the
// first z1. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/mesh.h"

namespace canzona {

struct ZeroSizes {
  int32_t z1 = 0;  // of states; 0: all homes
  int32_t z2 = 1;  // of gradients
  int32_t z3 = 1;  // of parameters

  int32_t places() const { return z2 > z3 ? z2 : z3; }
  int32_t near() const { return z2 < z3 ? z2 : z3; }
  friend bool operator==(const ZeroSizes&, const ZeroSizes&) = default;
};

// A message of a module carries all of it, or a single tensor.
enum class MessageUnit { kModule, kParameter };
std::string_view to_string(MessageUnit unit);
MessageUnit parse_message_unit(std::string_view text);

// How much of the communication compute waits for immediately.
enum class Overlap {
  kNone,        // everything
  kMain,        // all but the next module's gather and the last one's scatter
  kBackground,  // nothing that it does not need yet
};
std::string_view to_string(Overlap overlap);
Overlap parse_overlap(std::string_view text);

// Gradients are summed over the groups either only on the ranks that need them
// or, as first published, on every rank.
enum class ReplicaSum { kScatter, kAllReduce };
std::string_view to_string(ReplicaSum sum);
ReplicaSum parse_replica_sum(std::string_view text);

// Gathers and sums reach either every rank of the other nodes, or one rank per
// node, which forwards the data inside its node (schedule/rank_group.h). kAuto
// occurs only in requests; a plan has resolved it (settled_reach).
enum class Reach { kDirect, kPerNode, kAuto };
std::string_view to_string(Reach reach);
Reach parse_reach(std::string_view text);

// "auto", or how many modules are gathered ahead of the one in use.
inline constexpr int32_t kAutoPrefetch = -1;
int32_t parse_prefetch(std::string_view text,
                       std::string_view option = "prefetch");

struct ZeroOptions {
  ZeroSizes sizes = {};
  // The sizes of experts over their own homes. In a request z1 = 0 means: on
  // the ranks on which dense tensors are cut. In a plan: not cut otherwise
  // (plan.h).
  ZeroSizes experts = {};
  MessageUnit message = MessageUnit::kModule;
  int32_t prefetch = kAutoPrefetch;
  ReplicaSum replica_sum = ReplicaSum::kScatter;
  Reach reach = Reach::kDirect;
  friend bool operator==(const ZeroOptions&, const ZeroOptions&) = default;
};

// Parses "none", "zero1", "zero2", "zero3", "replica:Z", "hier:Z" or
// "z1=16,z2=4,z3=4" (defaults: all homes for z1, 1 for the others). The
// UsageError names what is wrong, and what was expected: `also` is a word that
// the caller itself knows, such as "auto". Sizes that do not divide are
// reported by check_zero.
ZeroSizes parse_zero(std::string_view text, int32_t homes,
                     std::string_view option = "zero",
                     std::string_view also = "");
std::string to_string(const ZeroSizes& sizes);  // "z1=16,z2=4,z3=4"
// Returns the sizes as a user types them: "none", "zero1", "zero2", "zero3",
// "hier:8", "replica:4" or the triple; the first of these that applies.
std::string zero_name(const ZeroSizes& sizes, int32_t homes);

// Fills in the default of z1.
ZeroSizes with_states(ZeroSizes sizes, int32_t homes);

// The UsageError names the option and the division that fails.
void check_zero(const ZeroSizes& sizes, int32_t homes,
                std::string_view option = "zero");

// True for ZeRO-1: states are cut over all homes, everything else is
// replicated.
inline bool is_plain(const ZeroSizes& sizes, int32_t homes) {
  return sizes == ZeroSizes{homes, 1, 1};
}

// The same, for experts too.
inline bool is_plain(const ZeroOptions& options, int32_t homes) {
  return is_plain(options.sizes, homes) && options.experts.z1 == 0;
}

// Resets options that do not apply to these sizes to their defaults. If experts
// have sizes of their own, that is up to each of the parts (plan.h).
ZeroOptions settled(const ZeroOptions& options, int32_t homes);

// Returns all sizes that check_zero accepts, small ones first.
std::vector<ZeroSizes> all_zero_sizes(int32_t homes);

// The mesh to be planned on; the mesh itself for plain ZeRO-1. Without expert
// parallelism, unless it is plain (plan.h).
Mesh fold(const Mesh& mesh, const ZeroSizes& sizes);

}  // namespace canzona
