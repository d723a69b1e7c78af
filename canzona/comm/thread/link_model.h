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
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "canzona/comm/link_use.h"
#include "canzona/comm/transport.h"

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

// Models links for ranks whose messages are only enqueued, by a clock beside
// the lanes.
//
// An exchange of a rank (what it posts until the next poll) begins when its
// lane writes one word, and at its end the lane waits for a second word. The
// pacer watches the first words, books every message on the ports of both ranks
// (LinkModel) from the later of the two beginnings, and writes the second
// word when the last message of the exchange has arrived. So an exchange ends
// no sooner than on ranks that wait for their links, and no issuing thread
// blocks.
//
//   LanePacer::Line* line = pacer.add_line(group, rank, lane);
//   number = pacer.begin(*line);        // the lane writes
//   pacer.add_message(*sender, its number, *line, number, bytes);
//   pacer.end(*line);                   // all messages are known; the lane
//                                       // waits
//   pacer.remove(line);
//
// A thread of the pacer polls while something is in flight. With a test clock
// there is no thread: whoever waits advances the time (pass_time). Any thread
// may call.

struct ThreadGroup;

class LanePacer {
 public:
  using Time = LinkSchedule::Time;

  // The messages of one rank in one group.
  struct Line;

  // If null, the pacer uses real time. A test clock must outlive the pacer.
  explicit LanePacer(LinkSchedule& schedule, LinkClock* clock = nullptr);
  ~LanePacer();
  LanePacer(const LanePacer&) = delete;
  LanePacer& operator=(const LanePacer&) = delete;

  // Throws UsageError if the lane has no words. The lane must outlive the line.
  Line* add_line(std::shared_ptr<ThreadGroup> group, int rank, Lane& lane);
  // Lets the lane continue and forgets messages with others.
  void remove(Line* line) noexcept;

  // Begins an exchange, which includes all work that the lane does from now on,
  // and returns its number.
  uint32_t begin(Line& line);
  // Books a message from an exchange of `from` to one of `to`; neither may have
  // ended.
  void add_message(Line& from, uint32_t from_number, Line& to,
                   uint32_t to_number, int64_t bytes);
  // Ends the exchange: work that the lane gets from now on happens after it.
  // Both ranks must call add_message() before either ends.
  void end(Line& line);

  // Lets all lanes continue without waiting for links.
  void release() noexcept;

  // With a test clock: sees what has begun, advances time to the next end, and
  // completes what is over then.
  void pass_time();

 private:
  struct Message {
    Line* from = nullptr;
    uint32_t from_number = 0;
    int64_t bytes = 0;
  };
  struct Passing {
    std::optional<Time> began;
    bool all_known = false;         // end() was called
    std::vector<Message> arriving;  // not booked yet
    int num_leaving = 0;            // likewise, to others
    Time over{0};
  };

  Time now() const;
  void run();
  // Books what has begun, completes what is over, and returns the time of the
  // next end.
  std::optional<Time> look();
  void book(Line& to);
  std::optional<Time> end_first(Line& line);
  static Passing& passing(Line& line, uint32_t number);
  static bool has_begun(Line& line, uint32_t number);

  LinkSchedule& schedule_;
  LinkClock* const clock_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<std::unique_ptr<Line>> lines_;
  int64_t num_passing_ = 0;
  bool released_ = false;
  bool closing_ = false;
  std::thread thread_;  // last, because it uses the other members
};

}  // namespace canzona
