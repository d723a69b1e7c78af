// A Trace records what happened when: spans, counters and flows (arrows from
// span to span) of every rank and thread, to be viewed in Perfetto
// (ui.perfetto.dev) or chrome://tracing.
//
//   Trace trace;
//   Track* track = trace.add_track(rank, "compute");
//   {
//     Span span(track, "transform", "layers.3");
//     …
//   }
//   Span sent(track, {"all-gather", "layer 3", "q.weight", bytes});
//   count(track, "bytes in flight", 4096);
//   flow_begin(gather_track, "parameters", 7);  // before its span ends
//   flow_end(track, "parameters", 7);           // inside the span that waited
//   file << trace.json();
//
// A track is written by one thread at a time; tracks are independent. Without a
// trace the track is null, and a span costs one comparison. Memory is reserved
// when a track is made; events beyond that are dropped and counted, so tracing
// never allocates or blocks what it observes. The file says how many events
// each track lost (`otherData`), and so does losses(). Texts are not copied:
// they must live as long as the trace; pass texts made at run time to keep().
// Call json() when no thread writes.
//
// Asynchronous device work is timed by the device: a track with a TrackClock
// records points in the device's work, and settle() converts them to times when
// the device has passed them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace canzona {

class JsonWriter;

// Returns nanoseconds since some fixed moment; the same for all threads.
using TraceClock = int64_t (*)();
int64_t steady_nanoseconds();

// The contents of a span. Texts must live as long as the trace.
struct SpanFacts {
  std::string_view name;
  std::string_view label = {};
  std::string_view tensors = {};  // that it concerns
  int64_t bytes = -1;             // moved or processed; below 0: none
};

// Points in a device's work, and when it reached them.
class TrackClock {
 public:
  virtual ~TrackClock() = default;
  // Returns a number for the point after everything issued to the device so
  // far.
  virtual int64_t stamp() = 0;
  // Returns the time of a point that has been passed, in nanoseconds of the
  // trace's clock.
  virtual int64_t time_of(int64_t stamp) = 0;
};

class Track {
 public:
  Track(int rank, int number, std::string name, size_t most_events,
        TraceClock clock, TrackClock* device);

  int64_t now() const {
    return device_ != nullptr ? device_->stamp() : clock_();
  }
  // Converts all points to times; all must have been passed. Afterwards the
  // device's clock may be destroyed, and nothing more may be added. Does
  // nothing on a track without a clock.
  void settle();
  void add_span(const SpanFacts& facts, int64_t begin, int64_t end);
  void add_count(std::string_view name, int64_t value);
  void add_flow_begin(std::string_view name, int64_t id);
  void add_flow_end(std::string_view name, int64_t id);

 private:
  friend class Trace;

  enum class Kind { kSpan, kCount, kFlowBegin, kFlowEnd };
  struct Event {
    Kind kind;
    SpanFacts facts;  // only the name, except for spans
    int64_t begin;
    int64_t end;    // for a span
    int64_t value;  // a counter's value or a flow's id
  };
  void add(const Event& event);

  int rank_;
  int number_;
  std::string name_;
  TraceClock clock_;
  TrackClock* device_;
  std::vector<Event> events_;
  int64_t dropped_ = 0;
};

class Trace {
 public:
  static constexpr size_t kMostEvents = size_t{1} << 16;

  explicit Trace(size_t most_events_per_track = kMostEvents,
                 TraceClock clock = steady_nanoseconds);

  // The track lives as long as the trace. Any thread may call.
  Track* add_track(int rank, std::string name, TrackClock* device = nullptr);
  int64_t now() const { return clock_(); }

  // Returns the same text with the lifetime of the trace; equal texts are
  // stored once. Any thread may call.
  std::string_view keep(std::string text);

  // Returns one line that names the tracks whose events did not all fit, with
  // how many are missing; empty if all did. Call it when no thread writes.
  std::string losses() const;
  // Returns the trace event format: ranks are processes, tracks are their
  // threads.
  std::string json() const;

 private:
  void write(JsonWriter& out, const Track& track,
             const Track::Event& event) const;
  void write_losses(JsonWriter& out) const;

  size_t most_events_;
  TraceClock clock_;
  int64_t start_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Track>> tracks_;
  std::set<std::string> texts_;
};

// Covers the time from construction to destruction.
class Span {
 public:
  Span(Track* track, const SpanFacts& facts) : track_(track) {
    if (track_ == nullptr) return;
    facts_ = facts;
    begin_ = track_->now();
  }
  Span(Track* track, std::string_view name, std::string_view label = {})
      : Span(track, SpanFacts{name, label}) {}
  ~Span() {
    if (track_ != nullptr) track_->add_span(facts_, begin_, track_->now());
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Track* track_;
  SpanFacts facts_;
  int64_t begin_ = 0;
};

inline void count(Track* track, std::string_view name, int64_t value) {
  if (track != nullptr) track->add_count(name, value);
}

// An arrow between two spans of one rank, on any of its tracks: from the span
// that is open at the first call to the one that is open at the second. Name
// and id (below 2^32, used once per rank) match the calls.
inline void flow_begin(Track* track, std::string_view name, int64_t id) {
  if (track != nullptr) track->add_flow_begin(name, id);
}
inline void flow_end(Track* track, std::string_view name, int64_t id) {
  if (track != nullptr) track->add_flow_end(name, id);
}

}  // namespace canzona
