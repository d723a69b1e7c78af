// Links that threads do not have: how long messages of a described cluster
// would take. Data is moved and added at once; only its arrival is postponed.
//
//   LinkModel link = parse_link_model(
//       "intra=2GB/s,inter=0.2GB/s,latency=20us,ranks_per_node=4");
//
// A rank has one sending and one receiving port for its own node and one of
// each for the others, whichever thread and group a message belongs to. A port
// carries one message at a time. A message takes
//   overhead + bytes / bandwidth
// of the port's time at both ends, the overhead being a tenth of the latency as
// in the plan's predictions, and has arrived a latency after both have ended.
// The ends need not be free at the same time, as if a switch kept the message
// in between: so an exchange takes what its busiest port takes, in whichever
// order ranks come, and a plan can say how long.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "canzona/comm/link_use.h"

namespace canzona {

struct LinkModel {
  double intra_bytes_per_second = 0;
  double inter_bytes_per_second = 0;
  double latency_seconds = 0;
  int ranks_per_node = 1;

  // The share of a latency for which every message holds a port, which is that
  // of predicted links, too (plan/options.h).
  static constexpr double kOverheadOfLatency = 0.1;
};

// `intra` and `inter` are needed; latency is 0 and ranks_per_node as here if
// not given. UsageError names the part that is wrong.
LinkModel parse_link_model(std::string_view text, int ranks_per_node = 1);

// A LinkClock waits for the link, in real time or in a test's. One per rank.
class LinkClock {
 public:
  virtual ~LinkClock() = default;
  virtual std::chrono::nanoseconds now() = 0;
  virtual void sleep_until(std::chrono::nanoseconds time) = 0;
};

// A LinkSchedule says when messages arrive. Any thread may call; each call
// takes the first free time of both ports.
class LinkSchedule {
 public:
  using Time = std::chrono::nanoseconds;

  LinkSchedule(const LinkModel& model, int num_ranks);

  // The passage of a message that both ranks are ready for at `ready`: when it
  // has left the sender's port and when the receiver's, and how much later it
  // has arrived.
  struct Passage {
    Time sent{0}, received{0}, latency{0};
    Time arrival() const { return std::max(sent, received) + latency; }
  };
  Passage book(int from, int to, int64_t bytes, Time ready);

  // The use of all ports of a rank.
  const LinkUse& use(int rank) const {
    return uses_[static_cast<size_t>(rank)];
  }

 private:
  struct Ports {
    BusyTimes sending, receiving;
  };

  LinkModel model_;
  std::mutex mutex_;
  std::vector<std::array<Ports, 2>> ports_;  // by rank; own node, others
  std::vector<LinkUse> uses_;                // by rank
};

}  // namespace canzona
