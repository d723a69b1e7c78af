// For tests: groups of several nodes.
#pragma once

#include <ostream>

#include "canzona/comm/node_group.h"

namespace canzona::comm {

struct NodeShape {
  int nodes = 1;
  int per_node = 1;
  int size() const { return nodes * per_node; }
  friend std::ostream& operator<<(std::ostream& out, const NodeShape& shape) {
    return out << shape.nodes << " nodes of " << shape.per_node;
  }
};

inline NodeGroup found_nodes(Communicator& world, const NodeShape& shape) {
  const int node = world.rank() / shape.per_node;
  const int place = world.rank() % shape.per_node;
  auto inside = world.split(node, place, "inside");
  auto across = world.split(place, node, "across");
  return {std::move(inside), std::move(across), cpu_wire_ops()};
}

}  // namespace canzona::comm
