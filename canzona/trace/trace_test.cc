#include "canzona/trace/trace.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "canzona/base/test_allocations.h"

namespace canzona::trace::trace_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

int64_t fake_now = 0;
int64_t fake_clock() { return fake_now; }

// Returns the events of a kind, in the order written.
std::vector<nlohmann::json> events(const Trace& trace, const std::string& ph) {
  std::vector<nlohmann::json> found;
  const auto whole = nlohmann::json::parse(trace.json());
  for (const auto& event : whole["traceEvents"])
    if (event["ph"] == ph) found.push_back(event);
  return found;
}

TEST(Trace, ShowsSpansOfRanksAndThreads) {
  fake_now = 1'000'000;
  Trace trace(16, fake_clock);
  Track* track = trace.add_track(3, "compute");
  fake_now += 5'000;
  {
    const Span outer(track, "step");
    fake_now += 1'500;
    {
      const Span inner(track, "transform", "layers.0 <&>");
      fake_now += 2'000;
    }
    fake_now += 500;
  }
  const auto spans = events(trace, "X");
  ASSERT_THAT(spans, SizeIs(2));
  EXPECT_EQ(spans[0]["name"], "transform");
  EXPECT_EQ(spans[0]["args"]["label"], "layers.0 <&>");
  EXPECT_EQ(spans[0]["ts"], 6.5);
  EXPECT_EQ(spans[0]["dur"], 2.0);
  EXPECT_EQ(spans[1]["name"], "step");
  EXPECT_EQ(spans[1]["ts"], 5.0);
  EXPECT_EQ(spans[1]["dur"], 4.0);
  EXPECT_EQ(spans[1]["pid"], 3);
  EXPECT_FALSE(spans[1]["args"].contains("label"));
}

// Numbers its points 0, 1, 2, …, and reaches each 100 us after the previous
// one.
class FakeDevice final : public TrackClock {
 public:
  explicit FakeDevice(int64_t begin) : begin_(begin) {}
  int64_t stamp() override { return num_stamps_++; }
  int64_t time_of(int64_t stamp) override { return begin_ + stamp * 100'000; }

 private:
  int64_t begin_;
  int64_t num_stamps_ = 0;
};

TEST(Trace, SpansOfADeviceHaveItsTimesOnceTheyAreSettled) {
  fake_now = 7'000'000;
  Trace trace(16, fake_clock);
  Track* host = trace.add_track(0, "compute");
  Track* stream = nullptr;
  {
    FakeDevice device(fake_now + 1'000);
    stream = trace.add_track(0, "GPU stream", &device);
    {
      const Span outer(stream, "gather", "layer 3");  // points 0 and 3
      const Span inner(stream, "all-gather");         // points 1 and 2
    }
    count(stream, "slots", 5);  // point 4
    host->settle();             // does nothing
    stream->settle();
  }
  stream->settle();  // nor does this: the device is gone
  const auto spans = events(trace, "X");
  ASSERT_THAT(spans, SizeIs(2));
  EXPECT_EQ(spans[0]["name"], "all-gather");
  EXPECT_EQ(spans[0]["ts"], 101.0);
  EXPECT_EQ(spans[0]["dur"], 100.0);
  EXPECT_EQ(spans[1]["args"]["label"], "layer 3");
  EXPECT_EQ(spans[1]["ts"], 1.0);
  EXPECT_EQ(spans[1]["dur"], 300.0);
  const auto counts = events(trace, "C");
  ASSERT_THAT(counts, SizeIs(1));
  EXPECT_EQ(counts[0]["ts"], 401.0);
}

TEST(Trace, NamesEveryRankOnceAndEveryTrack) {
  Trace trace(4, fake_clock);
  trace.add_track(0, "compute");
  trace.add_track(0, "communication");
  trace.add_track(1, "compute");
  std::vector<std::string> names;
  for (const auto& event : events(trace, "M"))
    names.push_back(event["args"]["name"]);
  EXPECT_THAT(names, ElementsAre("rank 0", "compute", "communication", "rank 1",
                                 "compute"));
}

TEST(Trace, KeepsCounters) {
  fake_now = 0;
  Trace trace(4, fake_clock);
  Track* track = trace.add_track(1, "communication");
  count(track, "bytes", 7);
  fake_now = 3'000;
  count(track, "bytes", -1);
  const auto counters = events(trace, "C");
  ASSERT_THAT(counters, SizeIs(2));
  EXPECT_EQ(counters[1]["args"]["value"], -1);
  EXPECT_EQ(counters[1]["ts"], 3.0);
}

bool lies_inside(const nlohmann::json& event, const nlohmann::json& span) {
  const double at = event["ts"];
  const double begin = span["ts"];
  return event["pid"] == span["pid"] && event["tid"] == span["tid"] &&
         at > begin && at < begin + double{span["dur"]};
}

// Two gathers on each rank, awaited by two modules; time passes throughout.
TEST(Trace, FlowsLeadFromSpanToSpan) {
  fake_now = 0;
  const auto ticking = [] { return fake_now += 1'000; };
  Trace trace(16, ticking);
  for (int rank : {0, 1}) {
    Track* gather = trace.add_track(rank, "gather");
    Track* compute = trace.add_track(rank, "compute");
    for (int module : {0, 1}) {
      const Span span(gather, "all_gather_v");
      flow_begin(gather, "parameters", module);
    }
    for (int module : {0, 1}) {
      const Span span(compute, "forward");
      flow_end(compute, "parameters", module);
    }
  }
  const auto begins = events(trace, "s");
  const auto ends = events(trace, "f");
  const auto spans = events(trace, "X");
  ASSERT_THAT(begins, SizeIs(4));
  ASSERT_THAT(ends, SizeIs(4));
  std::set<int64_t> ids;
  for (size_t i = 0; i < 4; ++i) {
    ids.insert(begins[i]["id"].get<int64_t>());
    EXPECT_EQ(begins[i]["id"], ends[i]["id"]);
    EXPECT_EQ(begins[i]["cat"], ends[i]["cat"]);
    EXPECT_EQ(begins[i]["name"], ends[i]["name"]);
    EXPECT_EQ(ends[i]["bp"], "e");
    EXPECT_FALSE(begins[i].contains("bp"));
    // Two gathers of each rank come first, then two modules.
    const size_t gather = i / 2 * 4 + i % 2;
    EXPECT_TRUE(lies_inside(begins[i], spans[gather]));
    EXPECT_TRUE(lies_inside(ends[i], spans[gather + 2]));
  }
  EXPECT_THAT(ids, SizeIs(4));
}

TEST(Trace, DropsAndCountsWhatDoesNotFit) {
  Trace trace(3, fake_clock);
  Track* track = trace.add_track(0, "compute");
  for (int i = 0; i < 10; ++i) const Span span(track, "work");
  EXPECT_THAT(events(trace, "X"), SizeIs(3));
  EXPECT_THAT(trace.losses(), HasSubstr("is missing 7 events"));
}

TEST(Trace, SaysWhichTracksLackHowMany) {
  Trace trace(3, fake_clock);
  Track* full = trace.add_track(0, "compute");
  Track* half = trace.add_track(0, "data");
  Track* other = trace.add_track(5, "data");
  count(half, "bytes", 1);
  EXPECT_EQ(trace.losses(), "");
  EXPECT_EQ(nlohmann::json::parse(trace.json())["otherData"],
            nlohmann::json::parse(R"({"dropped_events": 0, "dropped": []})"));
  for (int i = 0; i < 10; ++i) const Span span(full, "work");
  for (int i = 0; i < 4; ++i) count(other, "bytes", i);
  EXPECT_EQ(
      trace.losses(),
      "the trace is missing 8 events: a track keeps its first 3; dropped: "
      "rank 0 'compute' 7, rank 5 'data' 1");
  EXPECT_EQ(nlohmann::json::parse(trace.json())["otherData"],
            nlohmann::json::parse(R"({"dropped_events": 8, "dropped": [
                {"rank": 0, "track": "compute", "kept": 3, "dropped": 7},
                {"rank": 5, "track": "data", "kept": 3, "dropped": 1}]})"));
}

TEST(Trace, NamesNoMoreThanEightTracksThatLackEvents) {
  Trace trace(0, fake_clock);
  for (int rank = 0; rank < 11; ++rank)
    count(trace.add_track(rank, "data"), "bytes", 1);
  EXPECT_THAT(trace.losses(), testing::HasSubstr("rank 7 'data' 1, 3 more "));
}

TEST(Trace, NothingHappensWithoutATrack) {
  const Span span(nullptr, "work");
  count(nullptr, "bytes", 1);
  flow_begin(nullptr, "parameters", 1);
  flow_end(nullptr, "parameters", 1);
}

TEST(Trace, WritingNeverAllocates) {
  Trace trace(100);
  Track* track = trace.add_track(0, "compute");
  const int64_t before = num_allocations();
  for (int i = 0; i < 200; ++i) {
    const Span span(track, "work", "a label that is longer than any buffer");
    count(track, "bytes", i);
    flow_begin(track, "parameters", i);
    flow_end(track, "parameters", i);
  }
  EXPECT_EQ(num_allocations(), before);
}

TEST(Trace, KeepsTextsOnceAndWhereTheyAre) {
  Trace trace(4, fake_clock);
  Track* track = trace.add_track(0, "compute");
  const std::string_view first = trace.keep("layers." + std::to_string(0));
  {
    const Span span(track, "work", first);
    for (int i = 1; i < 1000; ++i) trace.keep("layers." + std::to_string(i));
  }
  EXPECT_EQ(first, "layers.0");
  EXPECT_EQ(trace.keep("layers.0").data(), first.data());
  EXPECT_EQ(events(trace, "X")[0]["args"]["label"], "layers.0");
}

TEST(Trace, ThreadsKeepTextsSideBySide) {
  Trace trace(4);
  std::vector<std::vector<std::string_view>> kept(4);
  std::vector<std::thread> threads;
  for (auto& texts : kept)
    threads.emplace_back([&trace, &texts] {
      for (int i = 0; i < 200; ++i)
        texts.push_back(trace.keep("text " + std::to_string(i)));
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 200; ++i)
    for (const auto& texts : kept) {
      EXPECT_EQ(texts[i], "text " + std::to_string(i));
      EXPECT_EQ(texts[i].data(), kept[0][i].data());
    }
}

TEST(Trace, ThreadsWriteTheirOwnTracks) {
  Trace trace(1000);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 8; ++rank)
    threads.emplace_back([&trace, rank] {
      Track* track = trace.add_track(rank, "compute");
      for (int i = 0; i < 500; ++i) {
        const Span span(track, "work");
        count(track, "done", i);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(trace.losses(), "");
  EXPECT_THAT(events(trace, "X"), SizeIs(8 * 500));
  EXPECT_THAT(events(trace, "C"), SizeIs(8 * 500));
}

}  // namespace
}  // namespace canzona::trace::trace_test
