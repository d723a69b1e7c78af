// Modelled links for ranks whose messages are only issued: a clock beside the
// lanes.
//
// An exchange of a rank (what it posts until the next poll) begins when its
// lane writes a word, and the lane stops at its end until another word is
// there. The pacer looks at the first words, books every message on the ports
// of both ranks (link_model.h) as of the later of the two beginnings, and
// writes the second word when the last message of the exchange has arrived. So
// it takes no sooner an end than on ranks that wait for their links, and no
// thread that issues waits for it.
//
//   LanePacer::Line* line = pacer.add_line(group, rank, lane);
//   number = pacer.begin(*line);        // the lane writes
//   pacer.add_message(*sender, its number, *line, number, bytes);
//   pacer.end(*line);                   // all messages are known; the lane
//                                       // waits
//   pacer.remove(line);
//
// A thread of its own looks again and again while something is under way. With
// a clock for tests there is none: whoever waits lets time pass (pass_time).
// Any thread may call.
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

  // Null: real time. A clock for tests outlives the pacer.
  explicit LanePacer(LinkSchedule& schedule, LinkClock* clock = nullptr);
  ~LanePacer();
  LanePacer(const LanePacer&) = delete;
  LanePacer& operator=(const LanePacer&) = delete;

  // UsageError if the lane has no words. The lane outlives the line.
  Line* add_line(std::shared_ptr<ThreadGroup> group, int rank, Lane& lane);
  // Lets the lane go on; messages with others are forgotten.
  void remove(Line* line) noexcept;

  // Begins an exchange, of which all that the lane does from now on is a part,
  // and returns its number.
  uint32_t begin(Line& line);
  // Books a message from an exchange of `from` to one of `to`; neither has
  // ended.
  void add_message(Line& from, uint32_t from_number, Line& to,
                   uint32_t to_number, int64_t bytes);
  // Ends the exchange: all that the lane does from now on happens after it.
  // Both ranks end after add_message().
  void end(Line& line);

  // Nobody waits for links any more.
  void release() noexcept;

  // With a clock for tests: sees what has begun, lets time pass up to the next
  // end, and ends what is over then.
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
    int num_leaving = 0;            // the same, to others
    Time over{0};
  };

  Time now() const;
  void run();
  // Books what has begun, ends what is over, and gives the time at which more
  // will be.
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
  std::thread thread_;  // last: it uses all the others
};

}  // namespace canzona
