// One operation of a background thread as a rank's ports see it.
//
//   Transfer gather{.bytes = {.sent_intra = 3 << 20, .received_intra = 3 <<
//   20},
//                   .messages_intra = 3};
//   double seconds = seconds_alone(gather, links, copy_bytes_per_second);
//
// A rank has four ports: sending and receiving, inside its node (intra, the
// fast links) and between nodes (inter, the slow ones). Each message holds a
// port for overhead + bytes / bandwidth, one after the other, and arrives a
// latency after it has left; the ports work beside each other. Values; any
// thread.
#pragma once

#include <array>
#include <cstdint>

#include "canzona/plan/options.h"
#include "canzona/plan/predict/predict.h"

namespace canzona {

struct Transfer {
  WireBytes bytes = {};
  int64_t messages_intra = 0;  // each way
  int64_t messages_inter = 0;
  // That the thread itself packs before it sends, and unpacks or adds of what
  // has come. Beside these, all that it receives is copied once while it is on
  // the wire.
  int64_t packed_bytes = 0;
  int64_t copied_bytes = 0;
  // Sums travel in segments, one on the wire while the last is added.
  int64_t parts = 1;
  // Links between nodes are told of the nearest ones: beyond, bytes take so
  // many times as long. A part arrives so much later than by one latency: links
  // that are farther, or further hops of a ring.
  double far_scale = 1;
  double added_latency_seconds = 0;

  bool empty() const {
    return bytes.sent() == 0 && bytes.received() == 0 && packed_bytes == 0 &&
           copied_bytes == 0;
  }
};

// An operation in the legs of the schedule (plan/schedule/rank_group.h), one
// after the other; without levels there is only the first.
struct Legs {
  Transfer first = {};
  Transfer second = {};

  bool empty() const { return first.empty() && second.empty(); }
  WireBytes bytes() const { return first.bytes + second.bytes; }
};

// One after the other; of legs, leg by leg.
Transfer both(const Transfer& a, const Transfer& b);
Legs both(const Legs& a, const Legs& b);

// Port by port the longer of both: an exchange ends when its slowest rank does.
Transfer slower(const Transfer& a, const Transfer& b);
Legs slower(const Legs& a, const Legs& b);

inline constexpr int kNumPorts = 4;
// Sending and receiving inside the node, sending and receiving between nodes.
using PortSeconds = std::array<double, kNumPorts>;

// A part of an operation costs this beside its bytes, because all its ranks
// have to wake up and meet: if this one computes meanwhile, and if not.
struct Meetings {
  double idle = 0;
  double beside_compute = 0;
};

// Returns how long all messages of a transfer hold each port.
PortSeconds port_seconds(const Transfer& transfer, const Links& links);

// A part of an operation: how long it holds each port, and how long after that
// it has arrived.
struct PartSeconds {
  PortSeconds held{};
  PortSeconds latency{};
};
PartSeconds part_seconds(const Transfer& transfer, const Links& links);

// Seconds of the thread's own work; 0 where copies are free. First it packs;
// then, part by part, it copies what is on the wire, and what has come.
struct CopySeconds {
  double pack = 0;
  double on_wire = 0;  // of a part
  double arrived = 0;  // of a part
};
CopySeconds copy_seconds(const Transfer& transfer,
                         double copy_bytes_per_second);

// From issue to end where nothing else is going on.
double seconds_alone(const Transfer& transfer, const Links& links,
                     double copy_bytes_per_second);
double seconds_alone(const Legs& legs, const Links& links,
                     double copy_bytes_per_second);

// UsageError for negative counts or no part.
void check_transfer(const Transfer& transfer);

}  // namespace canzona
