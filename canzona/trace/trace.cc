#include "canzona/trace/trace.h"

#include <array>
#include <chrono>
#include <utility>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// The format counts in microseconds.
double microseconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-3;
}

void write_name(JsonWriter& out, const char* what, int rank, int track,
                std::string_view name) {
  out.begin_object();
  out.field("ph", "M").field("name", what);
  out.field("pid", rank).field("tid", track);
  out.member("args").begin_object().field("name", name).end_object();
  out.end_object();
}

// Ids include the rank, because viewers look for a flow's other end among all
// ranks.
int64_t flow_id(int rank, int64_t id) { return (int64_t{rank} << 32) + id; }

}  // namespace

int64_t steady_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Track::Track(int rank, int number, std::string name, size_t most_events,
             TraceClock clock, TrackClock* device)
    : rank_(rank),
      number_(number),
      name_(std::move(name)),
      clock_(clock),
      device_(device) {
  events_.reserve(most_events);
}

void Track::settle() {
  if (device_ == nullptr) return;
  for (Event& event : events_) {
    event.begin = device_->time_of(event.begin);
    if (event.kind == Kind::kSpan) event.end = device_->time_of(event.end);
  }
  device_ = nullptr;
}

void Track::add(const Event& event) {
  if (events_.size() == events_.capacity())
    ++dropped_;
  else
    events_.push_back(event);
}

void Track::add_span(const SpanFacts& facts, int64_t begin, int64_t end) {
  add({Kind::kSpan, facts, begin, end, 0});
}

void Track::add_count(std::string_view name, int64_t value) {
  add({Kind::kCount, {name}, now(), 0, value});
}

void Track::add_flow_begin(std::string_view name, int64_t id) {
  add({Kind::kFlowBegin, {name}, now(), 0, id});
}

void Track::add_flow_end(std::string_view name, int64_t id) {
  add({Kind::kFlowEnd, {name}, now(), 0, id});
}

Trace::Trace(size_t most_events_per_track, TraceClock clock)
    : most_events_(most_events_per_track), clock_(clock), start_(clock()) {}

Track* Trace::add_track(int rank, std::string name, TrackClock* device) {
  const std::lock_guard lock(mutex_);
  const auto number = static_cast<int>(tracks_.size());
  tracks_.push_back(std::make_unique<Track>(rank, number, std::move(name),
                                            most_events_, clock_, device));
  return tracks_.back().get();
}

std::string_view Trace::keep(std::string text) {
  const std::lock_guard lock(mutex_);
  return *texts_.insert(std::move(text)).first;
}

std::string Trace::losses() const {
  constexpr size_t kMostNamed = 8;
  const std::lock_guard lock(mutex_);
  std::vector<std::string> tracks;
  int64_t sum = 0;
  for (const auto& track : tracks_) {
    sum += track->dropped_;
    if (track->dropped_ > 0)
      tracks.push_back(cat("rank ", track->rank_, " ", quoted(track->name_),
                           " ", track->dropped_));
  }
  if (tracks.empty()) return {};
  const size_t num_tracks = tracks.size();
  if (num_tracks > kMostNamed) {
    tracks.resize(kMostNamed);
    tracks.push_back(cat(num_tracks - kMostNamed, " more tracks"));
  }
  return cat("the trace is missing ", sum, " events: a track keeps its first ",
             most_events_, "; dropped: ", join(tracks, ", "));
}

void Trace::write_losses(JsonWriter& out) const {
  int64_t sum = 0;
  for (const auto& track : tracks_) sum += track->dropped_;
  out.member("otherData").begin_object();
  out.field("dropped_events", sum);
  out.member("dropped").begin_array();
  for (const auto& track : tracks_) {
    if (track->dropped_ == 0) continue;
    out.begin_object();
    out.field("rank", track->rank_).field("track", track->name_);
    out.field("kept", static_cast<int64_t>(track->events_.size()));
    out.field("dropped", track->dropped_).end_object();
  }
  out.end_array().end_object();
}

void Trace::write(JsonWriter& out, const Track& track,
                  const Track::Event& event) const {
  using Kind = Track::Kind;
  constexpr std::array<const char*, 4> kPhases = {"X", "C", "s", "f"};
  out.begin_object();
  out.field("ph", kPhases[static_cast<size_t>(event.kind)]);
  out.field("name", event.facts.name);
  out.field("pid", track.rank_).field("tid", track.number_);
  out.field("ts", microseconds(event.begin - start_));
  if (event.kind == Kind::kSpan)
    out.field("dur", microseconds(event.end - event.begin));
  if (event.kind == Kind::kFlowBegin || event.kind == Kind::kFlowEnd)
    out.field("cat", "flow").field("id", flow_id(track.rank_, event.value));
  // The arrow ends at the enclosing span, not at the next one.
  if (event.kind == Kind::kFlowEnd) out.field("bp", "e");
  out.member("args").begin_object();
  if (event.kind == Kind::kCount) out.field("value", event.value);
  if (!event.facts.label.empty()) out.field("label", event.facts.label);
  if (!event.facts.tensors.empty()) out.field("tensors", event.facts.tensors);
  if (event.facts.bytes >= 0) out.field("bytes", event.facts.bytes);
  out.end_object().end_object();
}

std::string Trace::json() const {
  const std::lock_guard lock(mutex_);
  JsonWriter out;
  out.begin_object().field("displayTimeUnit", "ms");
  write_losses(out);
  out.member("traceEvents").begin_array();
  std::set<int> ranks;
  for (const auto& track : tracks_) {
    if (ranks.insert(track->rank_).second)
      write_name(out, "process_name", track->rank_, 0,
                 cat("rank ", track->rank_));
    write_name(out, "thread_name", track->rank_, track->number_, track->name_);
  }
  for (const auto& track : tracks_)
    for (const Track::Event& event : track->events_) write(out, *track, event);
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona
