// A Trace records what happened when: spans, counters and flows (arrows from
// span to span) of every rank and thread, to be looked at in Perfetto
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
// A track is written by one thread at a time; tracks are independent. If no
// trace is wanted the track is null, and a span costs one comparison. Memory is
// reserved when a track is made; events beyond that are dropped and counted, so
// that tracing never allocates or stops what it watches. The file says how many
// of which track (`otherData`), and so does losses(). Texts are not copied:
// they live as long as the trace; those made at run time are handed to keep().
// `json` is called when no thread writes.
//
// Work that a device does later than it is told to is timed by the device: a
// track with a TrackClock takes points in the device's work for times, and
// settle() asks for these when the device has passed them.
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

// Nanoseconds since some moment; the same for all threads.
using TraceClock = int64_t (*)();
int64_t steady_nanoseconds();

// A span says this. Texts live as long as the trace.
struct SpanFacts {
  std::string_view name;
  std::string_view label = {};
  std::string_view tensors = {};  // that it is about
  int64_t bytes = -1;             // that it moves or works on; below 0: none
};

// Points in the work of a device, and when it came to them.
class TrackClock {
 public:
  virtual ~TrackClock() = default;
  // A number for the point after all that the device was told so far.
  virtual int64_t stamp() = 0;
  // In nanoseconds of the trace's clock; of a point that is passed.
  virtual int64_t time_of(int64_t stamp) = 0;
};

class Track {
 public:
  Track(int rank, int number, std::string name, size_t most_events,
        TraceClock clock, TrackClock* device);

  int64_t now() const {
    return device_ != nullptr ? device_->stamp() : clock_();
  }
  // All points are passed: they become times. The device's clock may end then,
  // and nothing more is added. Nothing to do on a track without one.
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
    SpanFacts facts;  // of all but spans the name alone
    int64_t begin;
    int64_t end;    // of a span
    int64_t value;  // of a counter; a flow's id
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

  // Lives as long as the trace. Any thread may call.
  Track* add_track(int rank, std::string name, TrackClock* device = nullptr);
  int64_t now() const { return clock_(); }

  // The same text, living as long as the trace; equal ones are kept once. Any
  // thread may call.
  std::string_view keep(std::string text);

  // One line that names the tracks whose events did not all fit, with how many
  // are missing; empty if all did. Call it when no thread writes.
  std::string losses() const;
  // In the trace event format: ranks as processes, tracks as their threads.
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

// From its construction to its end.
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

// An arrow between two spans of one rank, on whichever of its tracks: from the
// one that is open at the first call to the one that is open at the second.
// Name and id (below 2^32, used once by the rank) say which calls belong
// together.
inline void flow_begin(Track* track, std::string_view name, int64_t id) {
  if (track != nullptr) track->add_flow_begin(name, id);
}
inline void flow_end(Track* track, std::string_view name, int64_t id) {
  if (track != nullptr) track->add_flow_end(name, id);
}

}  // namespace canzona
