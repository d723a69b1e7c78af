// Links in levels: ranks of a node, nodes of a pod, pods of a cluster. Levels
// are blocks of consecutive ranks, each with the one before it as its parts.
//
//   const std::vector<LinkLevel> levels = …;          // the smallest first
//   links_of(levels);                                 // of the first two
//   FarLinks far = far_links(levels, rank, peers);    // and of those beyond
//
// A message to another node leaves by one port, whichever level it goes to. The
// links that it passes share out what a rank gets: the narrowest counts, and
// an oversubscribed level gives every rank so many times less. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/plan/options.h"

namespace canzona {

struct LinkLevel {
  std::string name;
  int32_t ranks = 1;            // of a block
  double bytes_per_second = 0;  // of a rank, each way
  double latency_seconds = 0;
  // Bytes that ranks may send over the level, to those that it carries.
  double oversubscription = 1;

  double rate() const { return bytes_per_second / oversubscription; }
  friend bool operator==(const LinkLevel&, const LinkLevel&) = default;
};

// Returns the links inside a node and to the nearest other one. A cluster of
// one level has nodes alone.
Links links_of(const std::vector<LinkLevel>& levels);

// The level of the smallest block that has both; the last one where none has.
size_t level_of(const std::vector<LinkLevel>& levels, int32_t a, int32_t b);

// How much longer bytes to these peers take than to the nearest other node, and
// how much later they arrive.
struct FarLinks {
  double scale = 1;
  double added_latency_seconds = 0;
};

// Peers of a rank by level.
using PeersByLevel = std::vector<int64_t>;

// `peers[l]`: how many there are at level l, each with as many bytes.
FarLinks far_links(const std::vector<LinkLevel>& levels,
                   const PeersByLevel& peers);

}  // namespace canzona
