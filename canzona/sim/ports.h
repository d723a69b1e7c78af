// A rank's four ports, shared by all its background threads; each port is first
// come, first served.
//
//   Ports ports(links);
//   double arrival = ports.book(ports.part_of(gather), now);
//
// One thread at a time.
#pragma once

#include <vector>

#include "canzona/sim/transfer.h"

namespace canzona {

class Ports {
 public:
  explicit Ports(const Links& links) : links_(links) {}

  // Returns how long a part of the transfer occupies each port.
  PartSeconds part_of(const Transfer& transfer) const {
    return part_seconds(transfer, links_);
  }

  // Returns when such a part, posted now, has arrived. Calls must be in the
  // order of time.
  double book(const PartSeconds& part, double now);

  // Returns the seconds between two times in which at least one port is busy:
  // inside the node (the first two), between nodes, or any.
  enum class Which { kIntra, kInter, kAny };
  double busy(Which which, double begin, double end) const;

  // Drops what ended before this time; busy() must not be asked about it again.
  void forget_before(double time);

 private:
  struct Stretch {
    double begin = 0, end = 0;
    int port = 0;
  };

  Links links_;
  PortSeconds free_{};
  std::vector<Stretch> stretches_;
};

}  // namespace canzona
