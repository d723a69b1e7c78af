// Models the links of a cluster for ranks that are threads: how long each
// message would take. Data is moved and added at once; only its arrival is
// delayed.
//
//   LinkModel link = parse_link_model(
//       "intra=2GB/s,inter=0.2GB/s,latency=20us,ranks_per_node=4");
//
// A rank has one sending and one receiving port for its own node and one of
// each for the others, shared by all threads and groups. A port carries one
// message at a time. A message takes
//   overhead + bytes / bandwidth
// of port time at both ends, where the overhead is a tenth of the latency, as
// in the plan's predictions; it arrives one latency after both ends are done.
// The two ports need not be free at the same time, as if a switch buffered the
// message. So an exchange takes as long as its busiest port, in whatever order
// ranks arrive, and a plan can predict it.
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

  // The share of the latency for which every message occupies a port; predicted
  // links use the same (plan/options.h).
  static constexpr double kOverheadOfLatency = 0.1;
};

// `intra` and `inter` are required; latency defaults to 0 and ranks_per_node to
// the argument. UsageError names the faulty item.
LinkModel parse_link_model(std::string_view text, int ranks_per_node = 1);

// A LinkClock waits for the link, in real time or in test time. There is one
// per rank.
class LinkClock {
 public:
  virtual ~LinkClock() = default;
  virtual std::chrono::nanoseconds now() = 0;
  virtual void sleep_until(std::chrono::nanoseconds time) = 0;
};

// A LinkSchedule computes when messages arrive. Any thread may call; each call
// books the first free time of both ports.
class LinkSchedule {
 public:
  using Time = std::chrono::nanoseconds;

  LinkSchedule(const LinkModel& model, int num_ranks);

  // The passage of a message for which both ranks are ready at `ready`: when it
  // leaves the sender's port, when it leaves the receiver's, and how much later
  // it arrives.
  struct Passage {
    Time sent{0}, received{0}, latency{0};
    Time arrival() const { return std::max(sent, received) + latency; }
  };
  Passage book(int from, int to, int64_t bytes, Time ready);

  // How long any port of a rank was busy.
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
