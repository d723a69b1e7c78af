#include "canzona/comm/courier_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/courier.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/test_ranks.h"

namespace canzona::courier_task_test {
namespace {

// Adds over all ranks, then multiplies: neither may be done alone.
class AddAndDouble final : public CourierTask {
 public:
  explicit AddAndDouble(std::vector<int64_t>& data) : data_(data) {}

  void run(Communicator& communicator, const Call& call) override {
    communicator.all_reduce(Reduction::kInt64Sum, bytes_of(data_), call);
    data_.front() *= 2;
    labels.emplace_back(call.label);
  }
  std::string_view name() const override { return "add and double"; }

  std::vector<std::string> labels;

 private:
  std::vector<int64_t>& data_;
};

TEST(CourierTask, RunsInItsTurn) {
  run_test_ranks(2, [](Communicator& world) {
    std::vector<int64_t> data = {1};
    AddAndDouble task(data);
    Courier courier(world, 2);
    for (int round = 0; round < 5; ++round) {
      courier.run(task, {.label = std::to_string(round)});
      courier.all_reduce(Reduction::kInt64Sum, bytes_of(data));
    }
    Work last = courier.run(task);
    last.wait();
    // Each task gives four times, each sum twice what was there.
    EXPECT_EQ(data.front(), int64_t{1} << (6 * 2 + 5));
    EXPECT_THAT(task.labels, testing::ElementsAre("0", "1", "2", "3", "4", ""));
    EXPECT_EQ(world.traffic().of(Operation::kAllReduce).calls, 11);
  });
}

TEST(CourierTask, IsASpanOfItsOwnName) {
  run_test_ranks(2, [](Communicator& world) {
    Trace trace;
    std::vector<int64_t> data = {1};
    AddAndDouble task(data);
    {
      Courier courier(world, 2, trace.add_track(world.rank(), "scatter"));
      courier.run(task, {.label = "layers.3"});
      courier.barrier();
    }
    std::vector<std::string> spans;
    const auto whole = nlohmann::json::parse(trace.json());
    for (const auto& event : whole["traceEvents"])
      if (event["ph"] == "X")
        spans.push_back(event["name"].get<std::string>() + ", " +
                        event["args"].value("label", "none"));
    EXPECT_THAT(spans, testing::ElementsAre("add and double, layers.3",
                                            "barrier, none"));
  });
}

}  // namespace
}  // namespace canzona::courier_task_test
