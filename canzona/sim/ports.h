// A rank's four ports, shared by all its background threads; each port is first
// come, first served.
//
//   Ports ports(links);
//   double arrival = ports.book(ports.part_of(gather), now);
//
// One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "canzona/base/rooms.h"
#include "canzona/plan/options.h"
#include "canzona/plan/predict/predict.h"

namespace canzona::sim {

// Events in the order of their times; events of equal time run in the order in
// which they were added, so that a simulation is reproducible.
//
//   EventQueue events;
//   events.at(events.now() + 0.5, [&] { … });
//   while (events.run_next()) {}
//
// One thread at a time.
class EventQueue {
 public:
  double now() const { return now_; }

  // Requires `time` >= now().
  void at(double time, std::function<void()> action) {
    queue_.push({time, next_number_++, std::move(action)});
  }

  // Returns false if nothing is left.
  bool run_next() {
    if (queue_.empty()) return false;
    const Event event = queue_.top();
    queue_.pop();
    now_ = event.time;
    event.action();
    return true;
  }

 private:
  struct Event {
    double time = 0;
    int64_t number = 0;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return std::pair(time, number) > std::pair(other.time, other.number);
    }
  };

  std::priority_queue<Event> queue_;
  int64_t next_number_ = 0;
  double now_ = 0;
};

// One operation of a background thread as a rank's ports see it.
//
//   const WireBytes bytes{.sent_intra = 3 << 20, .received_intra = 3 << 20};
//   Transfer gather{.bytes = bytes, .messages_intra = 3};
//   double seconds = seconds_alone(gather, links, copy_bytes_per_second);
//
// A rank has four ports: sending and receiving, inside its node (intra, the
// fast links) and between nodes (inter, the slow ones). Each message occupies a
// port for overhead + bytes / bandwidth, one after the other, and arrives one
// latency after it has left; the ports work in parallel. These are plain
// values.

struct Transfer {
  WireBytes bytes = {};
  int64_t messages_intra = 0;  // each way
  int64_t messages_inter = 0;
  // Bytes that the thread itself packs before it sends, and unpacks or adds
  // after arrival. In addition, everything it receives is copied once while it
  // is on the wire.
  int64_t packed_bytes = 0;
  int64_t copied_bytes = 0;
  // Sums travel in segments: one is on the wire while the previous one is
  // added.
  int64_t parts = 1;
  // Links between nodes describe the nearest ones: farther away, bytes take
  // far_scale times as long, and a part arrives later by added_latency_seconds,
  // because links are longer or a ring has more hops.
  double far_scale = 1;
  double added_latency_seconds = 0;

  bool empty() const {
    return bytes.sent() == 0 && bytes.received() == 0 && packed_bytes == 0 &&
           copied_bytes == 0;
  }
};

// An operation in the legs of the schedule (plan/schedule/rank_group.h), one
// after the other; without levels only the first is used.
struct Legs {
  Transfer first = {};
  Transfer second = {};

  bool empty() const { return first.empty() && second.empty(); }
  WireBytes bytes() const { return first.bytes + second.bytes; }
};

// Returns one after the other; legs are combined leg by leg.
Transfer both(const Transfer& a, const Transfer& b);
Legs both(const Legs& a, const Legs& b);

// Returns the slower of both on each port: an exchange ends when its slowest
// rank does.
Transfer slower(const Transfer& a, const Transfer& b);
Legs slower(const Legs& a, const Legs& b);

inline constexpr int kNumPorts = 4;
// Sending and receiving inside the node, sending and receiving between nodes.
using PortSeconds = std::array<double, kNumPorts>;

// The cost of a part of an operation beside its bytes, because all its ranks
// have to wake up and meet: while this rank is idle, and while it computes.
struct Meetings {
  double idle = 0;
  double beside_compute = 0;
};

// Returns how long all messages of a transfer occupy each port.
PortSeconds port_seconds(const Transfer& transfer, const Links& links);

// A part of an operation: how long it occupies each port, and how much later it
// has arrived.
struct PartSeconds {
  PortSeconds held{};
  PortSeconds latency{};
};
PartSeconds part_seconds(const Transfer& transfer, const Links& links);

// Seconds of the thread's own work; 0 if copies are free. It packs first; then,
// part by part, it copies what is on the wire and what has arrived.
struct CopySeconds {
  double pack = 0;
  double on_wire = 0;  // per part
  double arrived = 0;  // per part
};
CopySeconds copy_seconds(const Transfer& transfer,
                         double copy_bytes_per_second);

// Returns the time from issue to end if nothing else is going on.
double seconds_alone(const Transfer& transfer, const Links& links,
                     double copy_bytes_per_second);
double seconds_alone(const Legs& legs, const Links& links,
                     double copy_bytes_per_second);

// Throws UsageError for negative counts or zero parts.
void check_transfer(const Transfer& transfer);

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

}  // namespace canzona::sim
