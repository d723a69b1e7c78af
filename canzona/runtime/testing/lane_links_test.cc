// Modelled links and device spans of plans whose calls only issue work, on an
// asynchronous device. Times are those of a clock that advances only when
// nothing else can happen.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "canzona/base/json_reader.h"
#include "canzona/runtime/testing/test_late_trial.h"
#include "canzona/runtime/testing/test_plans.h"

namespace canzona::runtime::lane_links_test {
namespace {

constexpr double kLatency = 1e-6;
const LinkModel kLink{1e9, 0.25e9, kLatency, 2};

LateTrial trial_of(const std::string& mesh, const std::string& zero,
                   Overlap overlap) {
  return {.plan = small_plan(toy_model(), {.mesh = mesh, .zero = zero}),
          .options = {.overlap = overlap},
          .steps = 2,
          .micro_batches = 2};
}

struct Shape {
  const char *mesh, *zero;
};
const std::vector<Shape> kShapes = {{"dp=4", "zero1"},
                                    {"dp=4", "hier:2"},
                                    {"dp=4", "zero3"},
                                    {"dp=2,tp=2", "zero1"},
                                    {"dp=2,tp=2", "zero3"}};

TEST(LaneLinks, ChangeNoResult) {
  for (const auto& [mesh, zero] : kShapes)
    for (const Overlap overlap :
         {Overlap::kNone, Overlap::kMain, Overlap::kBackground}) {
      SCOPED_TRACE(cat(mesh, " ", zero, " ", to_string(overlap)));
      LateTrial trial = trial_of(mesh, zero, overlap);
      const std::string right = run_late_trial(trial);
      trial.link = kLink;
      for (const double eagerness : {0.0, 0.6}) {
        trial.device = LateDevice::Options{.seed = 5, .eagerness = eagerness};
        ASSERT_EQ(run_late_trial(trial), right) << eagerness;
      }
    }
}

TEST(LaneLinks, ComputeIsSeenToWaitWhereNothingIsAhead) {
  for (const auto& [mesh, zero] : kShapes) {
    SCOPED_TRACE(cat(mesh, " ", zero));
    LateTrial trial = trial_of(mesh, zero, Overlap::kNone);
    trial.link = kLink;
    trial.device = LateDevice::Options{.seed = 5, .eagerness = 0.6};
    trial.options.timed_waits = true;
    std::vector<RuntimeTimes> times(4);
    trial.times = &times;
    run_late_trial(trial);
    for (const RuntimeTimes& of : times) {
      EXPECT_TRUE(of.links_modelled);
      EXPECT_GT(of.links_busy, kLatency);
    }
    EXPECT_TRUE(std::ranges::any_of(times, [](const RuntimeTimes& of) {
      return of.waited() > kLatency;
    })) << "time passes once for all ranks";
  }
}

// Spans of one track of a trace, in the order in which they were added.
struct Seen {
  std::string name, label;
  double begin = 0, end = 0;  // microseconds
  int64_t bytes = 0;          // sent
};
using Tracks = std::map<std::pair<int, std::string>, std::vector<Seen>>;

Tracks tracks_of(const Trace& trace) {
  const Json json = parse_json(trace.json(), {});
  std::map<int, std::string> names;
  Tracks tracks;
  for (const Json& event : json.at("traceEvents")) {
    const int track = event.at("tid");
    if (event.at("name") == "thread_name")
      names[track] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    const Json& args = event.at("args");
    const double begin = event.at("ts"), length = event.at("dur");
    tracks[{event.at("pid"), names.at(track)}].push_back(
        {event.at("name"), args.contains("label") ? args.at("label") : "",
         begin, begin + length,
         args.contains("bytes") ? int64_t{args.at("bytes")} : 0});
  }
  return tracks;
}

std::vector<Seen> named(const std::vector<Seen>& all, const std::string& name) {
  std::vector<Seen> out;
  std::ranges::copy_if(all, std::back_inserter(out),
                       [&](const Seen& span) { return span.name == name; });
  return out;
}

Tracks traced(LateTrial trial) {
  Trace trace;
  trial.options.trace = &trace;
  run_late_trial(trial);
  return tracks_of(trace);
}

constexpr double kRounding = 2e-3;  // of microseconds in the file

TEST(LaneSpans, LastAsLongAsTheirLinksTake) {
  for (const auto& [mesh, zero] : kShapes) {
    SCOPED_TRACE(cat(mesh, " ", zero));
    LateTrial trial = trial_of(mesh, zero, Overlap::kBackground);
    trial.link = kLink;
    trial.device = LateDevice::Options{.seed = 5, .eagerness = 0.6};
    const Tracks tracks = traced(trial);
    size_t found = 0;
    for (int rank = 0; rank < 4; ++rank)
      for (const char* lane : {"gradients", "parameters"}) {
        const auto at = tracks.find({rank, cat("GPU stream, ", lane)});
        if (at == tracks.end()) continue;
        const auto& spans = at->second;
        double last = 0;
        for (const Seen& span : spans) {
          EXPECT_LE(span.begin, span.end);
          const bool moves = span.name == "all-gather" ||
                             span.name == "reduce-scatter" ||
                             span.name == "all-to-all";
          if (!moves || span.bytes == 0) continue;
          ++found;
          EXPECT_FALSE(span.label.empty());
          EXPECT_GE(span.begin, last - kRounding) << "one after the other";
          last = span.end;
          EXPECT_GE(span.end - span.begin, kLatency * 1e6 - kRounding)
              << span.name << " " << span.label;
        }
      }
    EXPECT_GE(found, 4U * 3U);
  }
}

// The device's time is the number of work items it has done.
TEST(LaneSpans, ShowThatAUseWaitsForItsGather) {
  LateTrial trial = trial_of("dp=4", "zero3", Overlap::kBackground);
  trial.device = LateDevice::Options{.seed = 7, .eagerness = 0.9};
  const Tracks tracks = traced(trial);
  for (int rank = 0; rank < 4; ++rank) {
    const auto gathers =
        named(tracks.at({rank, "GPU stream, parameters"}), "gather");
    const auto waits =
        named(tracks.at({rank, "GPU stream, compute"}), "wait for parameters");
    ASSERT_EQ(gathers.size(), waits.size());
    for (size_t use = 0; use < waits.size(); ++use) {
      EXPECT_EQ(gathers[use].label, waits[use].label);
      EXPECT_LE(gathers[use].end, waits[use].end + kRounding);
    }
  }
}

TEST(LaneSpans, ShowHowFarGathersGoAhead) {
  for (const int ahead : {0, 1}) {
    LateTrial trial =
        trial_of("dp=4", "zero3", ahead == 0 ? Overlap::kNone : Overlap::kMain);
    trial.device = LateDevice::Options{.seed = 7, .eagerness = 0.9};
    const Tracks tracks = traced(trial);
    for (int rank = 0; rank < 4; ++rank) {
      const auto gathers =
          named(tracks.at({rank, "GPU stream, parameters"}), "gather");
      const auto waits = named(tracks.at({rank, "GPU stream, compute"}),
                               "wait for parameters");
      ASSERT_EQ(gathers.size(), waits.size());
      const auto before = static_cast<size_t>(ahead) + 1;
      for (size_t use = before; use < waits.size(); ++use)
        EXPECT_GE(gathers[use].begin, waits[use - before].end - kRounding)
            << "use " << use << ", ahead " << ahead;
    }
  }
}

}  // namespace
}  // namespace canzona::runtime::lane_links_test
