// A rank's four ports, which all its background threads share: what comes first
// goes first, on each port by itself.
//
//   Ports ports(links);
//   double arrival = ports.book(ports.part_of(gather), now);
//
// One thread.
#pragma once

#include <vector>

#include "canzona/sim/transfer.h"

namespace canzona {

class Ports {
 public:
  explicit Ports(const Links& links) : links_(links) {}

  // Returns what one of its parts does to each port.
  PartSeconds part_of(const Transfer& transfer) const {
    return part_seconds(transfer, links_);
  }

  // Returns when such a part, posted now, has arrived. Calls come in the order
  // of time.
  double book(const PartSeconds& part, double now);

  // Between two times: seconds in which at least one port is busy; of the
  // own node (first two), of the others, or any.
  enum class Which { kIntra, kInter, kAny };
  double busy(Which which, double begin, double end) const;

  // Drops what ended before; busy() is not asked about it again.
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
