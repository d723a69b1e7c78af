#include "canzona/trace/trace.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "canzona/base/test_allocations.h"

namespace canzona {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

int64_t fake_now = 0;
int64_t fake_clock() { return fake_now; }

// Those of a kind, in the order written.
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

TEST(Trace, DropsAndCountsWhatDoesNotFit) {
  Trace trace(3, fake_clock);
  Track* track = trace.add_track(0, "compute");
  for (int i = 0; i < 10; ++i) const Span span(track, "work");
  EXPECT_EQ(trace.num_events(), 3);
  EXPECT_EQ(trace.num_dropped(), 7);
}

TEST(Trace, NothingHappensWithoutATrack) {
  const Span span(nullptr, "work");
  count(nullptr, "bytes", 1);
}

TEST(Trace, WritingNeverAllocates) {
  Trace trace(100);
  Track* track = trace.add_track(0, "compute");
  const int64_t before = num_allocations();
  for (int i = 0; i < 200; ++i) {
    const Span span(track, "work", "a label that is longer than any buffer");
    count(track, "bytes", i);
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
  EXPECT_EQ(trace.num_events(), 8 * 1000);
  EXPECT_EQ(trace.num_dropped(), 0);
  EXPECT_THAT(events(trace, "X"), SizeIs(8 * 500));
}

}  // namespace
}  // namespace canzona
