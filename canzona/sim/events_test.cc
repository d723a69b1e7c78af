#include "canzona/sim/ports.h"

#include <gmock/gmock.h>

namespace canzona::sim::events_test {
namespace {

using ::testing::ElementsAre;

TEST(EventQueue, RunsByTimeThenByEntry) {
  EventQueue events;
  std::vector<int> order;
  events.at(2, [&] { order.push_back(20); });
  events.at(1, [&] {
    order.push_back(10);
    events.at(2, [&] { order.push_back(22); });
  });
  events.at(2, [&] { order.push_back(21); });
  while (events.run_next()) {
  }
  EXPECT_THAT(order, ElementsAre(10, 20, 21, 22));
  EXPECT_EQ(events.now(), 2);
  EXPECT_FALSE(events.run_next());
}

}  // namespace
}  // namespace canzona::sim::events_test
