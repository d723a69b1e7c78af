// Hierarchical ZeRO: optimizer states, gradients and parameters cut over groups
// of different sizes.
//
//   ZeroSizes sizes = parse_zero("hier:4", 16);    // z1 = 16, z2 = z3 = 4
//   check_zero(sizes, 16);
//   Mesh grid = fold(mesh, sizes);
//
// The data-parallel ranks (homes) are numbered from 0; a group is a run of
// consecutive ones. States are cut over z1 of them, gradients over z2,
// parameters over z3. Home r is place r mod z for z = max(z2, z3); its TP
// shards are cut by rows into z slices, one for each place. A rank keeps its
// slice and, for the smaller of z2 and z3, the slices beside it.
//
// Folding makes of this the mesh that the planner knows: groups of z homes in
// the role of dp, places x tp in the role of tp. Homes beyond z1 repeat the
// first z1 as replicas. Values; any thread.
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

// One message of a module carries all of it, or one tensor.
enum class MessageUnit { kModule, kParameter };
std::string_view to_string(MessageUnit unit);
MessageUnit parse_message_unit(std::string_view text);

// Compute waits at once for this much of the communication.
enum class Overlap {
  kNone,        // everything
  kMain,        // all but the next module's gather and the last one's scatter
  kBackground,  // nothing that it does not need yet
};
std::string_view to_string(Overlap overlap);
Overlap parse_overlap(std::string_view text);

// Gradients are added over the groups to those who need them, or, as first
// published, everywhere.
enum class ReplicaSum { kScatter, kAllReduce };
std::string_view to_string(ReplicaSum sum);
ReplicaSum parse_replica_sum(std::string_view text);

// Gathers and sums reach each rank of other nodes, or one of every node, which
// passes on what it got (schedule/rank_group.h). kAuto is a wish only: a plan
// has settled it (settled_reach).
enum class Reach { kDirect, kPerNode, kAuto };
std::string_view to_string(Reach reach);
Reach parse_reach(std::string_view text);

// "auto", or how many modules are gathered ahead of the one in use.
inline constexpr int32_t kAutoPrefetch = -1;
int32_t parse_prefetch(std::string_view text);

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

// "none", "zero1", "zero2", "zero3", "replica:Z", "hier:Z" or
// "z1=16,z2=4,z3=4" (what is not named is all homes for z1, 1 for the others).
// UsageError names what is wrong; sizes that do not divide are left to
// check_zero.
ZeroSizes parse_zero(std::string_view text, int32_t homes,
                     std::string_view option = "zero");
std::string to_string(const ZeroSizes& sizes);  // "z1=16,z2=4,z3=4"
// As one types them: "none", "zero1", "zero2", "zero3", "hier:8", "replica:4",
// or the triple. Wherever several say the same, the first of them.
std::string zero_name(const ZeroSizes& sizes, int32_t homes);

// z1 filled in.
ZeroSizes with_states(ZeroSizes sizes, int32_t homes);

// UsageError says which division fails, and of which option.
void check_zero(const ZeroSizes& sizes, int32_t homes,
                std::string_view option = "zero");

// ZeRO-1: states over all homes, all else everywhere.
inline bool is_plain(const ZeroSizes& sizes, int32_t homes) {
  return sizes == ZeroSizes{homes, 1, 1};
}

// The same of experts, too.
inline bool is_plain(const ZeroOptions& options, int32_t homes) {
  return is_plain(options.sizes, homes) && options.experts.z1 == 0;
}

// Resets options that do not apply to these sizes to their defaults. If experts
// have sizes of their own, that is up to each of the parts (plan.h).
ZeroOptions settled(const ZeroOptions& options, int32_t homes);

// All sizes that check_zero lets pass, small ones first.
std::vector<ZeroSizes> all_zero_sizes(int32_t homes);

// The mesh to be planned on; the mesh itself for plain ZeRO-1. Without expert
// parallelism, unless it is plain (plan.h).
Mesh fold(const Mesh& mesh, const ZeroSizes& sizes);

}  // namespace canzona
