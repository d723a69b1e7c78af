#include "canzona/sim/ports.h"

#include <gtest/gtest.h>

#include "canzona/sim/test_work.h"

namespace canzona::sim::ports_test {
namespace {

using Which = Ports::Which;

TEST(Ports, CarryOneAfterTheOther) {
  Ports ports(slow_links());
  const PartSeconds part = ports.part_of(intra_transfer(4));
  EXPECT_EQ(ports.book(part, 0), 4);
  EXPECT_EQ(ports.book(part, 1), 8);
  EXPECT_EQ(ports.book(part, 10), 14);
}

// The second waits only for the first one's bytes, and arrives one latency
// after its own.
TEST(Ports, AreFreeBeforeAMessageHasArrived) {
  Ports ports(slow_links(5));
  const PartSeconds part = ports.part_of(intra_transfer(4));
  EXPECT_EQ(ports.book(part, 0), 4.5 + 5);
  EXPECT_EQ(ports.book(part, 0), 9 + 5);
  EXPECT_EQ(ports.busy(Which::kAny, 0, 20), 9);
}

TEST(Ports, OfDifferentClassesWorkBesideEachOther) {
  Ports ports(slow_links());
  EXPECT_EQ(ports.book(ports.part_of(intra_transfer(4)), 0), 4);
  EXPECT_EQ(ports.book(ports.part_of(inter_transfer(5)), 1), 6);
}

TEST(Ports, SendAndReceiveBesideEachOther) {
  Ports ports(slow_links());
  Transfer sent, received;
  sent.bytes.sent_intra = 4;
  received.bytes.received_intra = 4;
  EXPECT_EQ(ports.book(ports.part_of(sent), 0), 4);
  EXPECT_EQ(ports.book(ports.part_of(received), 0), 4);
}

// [0, 4) in the node, [2, 7) between nodes, [10, 11) in the node.
TEST(Ports, AreBusyInTheUnionOfTheirTimes) {
  Ports ports(slow_links());
  ports.book(ports.part_of(intra_transfer(4)), 0);
  ports.book(ports.part_of(inter_transfer(5)), 2);
  ports.book(ports.part_of(intra_transfer(1)), 10);
  EXPECT_EQ(ports.busy(Which::kAny, 0, 20), 8);
  EXPECT_EQ(ports.busy(Which::kIntra, 0, 20), 5);
  EXPECT_EQ(ports.busy(Which::kInter, 0, 20), 5);
  EXPECT_EQ(ports.busy(Which::kAny, 3, 10.5), 4.5);
  EXPECT_EQ(ports.busy(Which::kAny, 8, 9), 0);
}

TEST(Ports, ForgetWhatHasEnded) {
  Ports ports(slow_links());
  ports.book(ports.part_of(intra_transfer(4)), 0);
  ports.book(ports.part_of(inter_transfer(5)), 2);
  ports.forget_before(4);
  EXPECT_EQ(ports.busy(Which::kIntra, 0, 20), 0);
  EXPECT_EQ(ports.busy(Which::kInter, 4, 20), 3);
}

}  // namespace
}  // namespace canzona::sim::ports_test
