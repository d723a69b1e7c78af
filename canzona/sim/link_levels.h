// Hierarchical links: ranks of a node, nodes of a pod, pods of a cluster.
// Levels are blocks of consecutive ranks, each consisting of blocks of the
// level before.
//
//   const std::vector<LinkLevel> levels = …;          // smallest first
//   links_of(levels);                                 // of the first two
//   FarLinks far = far_links(levels, rank, peers);    // and of those beyond
//
// A message to another node leaves by one port, whatever level it crosses. Its
// bandwidth is that of the narrowest link on its path; an oversubscribed level
// divides every rank's bandwidth by its factor. All functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/options.h"

namespace canzona {

struct LinkLevel {
  std::string name;
  int32_t ranks = 1;            // per block
  double bytes_per_second = 0;  // per rank and direction
  double latency_seconds = 0;
  // The ratio of the bytes that ranks may send over the level to what it
  // carries.
  double oversubscription = 1;

  double rate() const { return bytes_per_second / oversubscription; }
  friend bool operator==(const LinkLevel&, const LinkLevel&) = default;
};

// Returns the links inside a node and to the nearest other one. A cluster with
// one level consists of a single node.
Links links_of(const std::vector<LinkLevel>& levels);

// Returns the level of the smallest block that contains both; the last one if
// none does.
size_t level_of(const std::vector<LinkLevel>& levels, int32_t a, int32_t b);

// How much longer bytes to these peers take than to the nearest other node, and
// how much later they arrive.
struct FarLinks {
  double scale = 1;
  double added_latency_seconds = 0;
};

// Peers of a rank by level.
using PeersByLevel = std::vector<int64_t>;

// `peers[l]` is the number of peers at level l, each with the same bytes.
FarLinks far_links(const std::vector<LinkLevel>& levels,
                   const PeersByLevel& peers);

}  // namespace canzona
