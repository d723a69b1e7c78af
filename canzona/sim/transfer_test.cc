#include "canzona/sim/ports.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/sim/test_work.h"

namespace canzona::sim::transfer_test {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

// 3 messages of 100 bytes in the node at 100 bytes a second, 4 of 50 between
// nodes at 10: the slow port takes longer.
TEST(Transfer, HoldsEachPortForOverheadsAndBytes) {
  Transfer gather;
  gather.bytes = {.sent_intra = 300,
                  .sent_inter = 200,
                  .received_intra = 300,
                  .received_inter = 100};
  gather.messages_intra = 3;
  gather.messages_inter = 4;
  const Links links{100, 10, 0.5, false};
  EXPECT_THAT(port_seconds(gather, links),
              ElementsAre(DoubleEq(3.15), DoubleEq(3.15), DoubleEq(20.2),
                          DoubleEq(10.2)));
  EXPECT_DOUBLE_EQ(seconds_alone(gather, links, 0), 20.2 + 0.5);
  gather.far_scale = 2;
  gather.added_latency_seconds = 1;
  EXPECT_DOUBLE_EQ(seconds_alone(gather, links, 0), 40.2 + 1.5);
}

TEST(Transfer, WithoutBytesTakesNoTime) {
  Transfer nothing;
  nothing.messages_intra = 5;
  EXPECT_TRUE(nothing.empty());
  EXPECT_THAT(port_seconds(nothing, slow_links(1)), ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(seconds_alone(nothing, slow_links(1), 1), 0);
}

TEST(Transfer, IsPackedBeforeItLeaves) {
  Transfer gather = intra_transfer(12);
  gather.packed_bytes = 8;
  EXPECT_EQ(seconds_alone(gather, slow_links(), 4), 2 + 12);
}

TEST(Transfer, IsCopiedAfterItsArrival) {
  Transfer gather = intra_transfer(12);
  gather.copied_bytes = 24;
  EXPECT_EQ(seconds_alone(gather, slow_links(), 4), 12 + 6);
  EXPECT_EQ(seconds_alone(gather, slow_links(), 0), 12);
}

// A part is added while the next one travels and is copied: 4 parts of 3
// seconds, each copied and added in 1, 2 or 5.
TEST(Transfer, OfPartsIsCopiedOnTheWay) {
  Transfer sum = intra_transfer(12);
  sum.copied_bytes = 12;
  sum.parts = 4;
  EXPECT_EQ(seconds_alone(sum, slow_links(), 3), 12 + 1);
  EXPECT_EQ(seconds_alone(sum, slow_links(), 1.5), 3 + 3 * 4 + 2);
  EXPECT_EQ(seconds_alone(sum, slow_links(), 0.6), 5 + 3 * 10 + 5);
}

TEST(Transfer, RefusesNegativeCounts) {
  Transfer bad = intra_transfer(1);
  bad.messages_inter = -1;
  EXPECT_THROW(check_transfer(bad), UsageError);
  bad = intra_transfer(-4);
  EXPECT_THROW(check_transfer(bad), UsageError);
  bad = intra_transfer(4);
  bad.parts = 0;
  EXPECT_THROW(check_transfer(bad), UsageError);
}

}  // namespace
}  // namespace canzona::sim::transfer_test
