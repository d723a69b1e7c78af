// Models links for ranks whose messages are only enqueued, by a clock beside
// the lanes.
//
// An exchange of a rank (what it posts until the next poll) begins when its
// lane writes one word, and at its end the lane waits for a second word. The
// pacer watches the first words, books every message on the ports of both ranks
// (link_model.h) from the later of the two beginnings, and writes the second
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
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "canzona/comm/lane.h"
#include "canzona/comm/thread/link_model.h"

namespace canzona {

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
