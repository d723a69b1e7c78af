#include "canzona/comm/tcp/meeting_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"

namespace canzona::comm::meeting_point_test {
namespace {

using testing::HasSubstr;

// A machine whose /etc/hosts has "127.0.1.1 node1.cluster node1", and loopback
// addresses for other names as well.
Machine debian(const std::string& address) {
  return {"node1", [](const std::string&) { return true; },
          [address] { return address; }};
}

std::string host_at(const std::string& host, const Machine& machine) {
  const Endpoint found = network_endpoint({host, 29600}, machine);
  EXPECT_EQ(found.port, 29600);
  return found.host;
}

TEST(MeetingPoint, AMachinesOwnNameMeansItsNetworkAddress) {
  const Machine machine = debian("10.0.0.5");
  EXPECT_EQ(host_at("node1", machine), "10.0.0.5");
  EXPECT_EQ(host_at("NODE1", machine), "10.0.0.5");
  EXPECT_EQ(host_at("node1.cluster", machine), "10.0.0.5");
}

TEST(MeetingPoint, OtherNamesAndAddressesAreKept) {
  const Machine machine = debian("10.0.0.5");
  for (const char* host : {"node2", "node12", "127.0.1.1", "10.0.0.7", "::1"})
    EXPECT_EQ(host_at(host, machine), host);
  EXPECT_EQ(host_at("node1", debian("")), "node1");
  Machine plain = debian("10.0.0.5");
  plain.is_loopback = [](const std::string&) { return false; };
  EXPECT_EQ(host_at("node1", plain), "node1");
  Machine unnamed = debian("10.0.0.5");
  unnamed.name = "localhost";
  EXPECT_EQ(host_at("localhost", unnamed), "localhost");
}

TEST(MeetingPoint, ThisMachineHasANameAndNoLoopbackAddressForOthers) {
  const Machine machine = this_machine();
  EXPECT_FALSE(machine.name.empty());
  EXPECT_TRUE(machine.is_loopback("127.0.1.1"));
  EXPECT_TRUE(machine.is_loopback("::1"));
  EXPECT_FALSE(machine.is_loopback("192.0.2.1"));
  const std::string address = machine.address();
  EXPECT_FALSE(!address.empty() && machine.is_loopback(address)) << address;
}

TEST(MeetingPoint, HintsAtLoopbackOnly) {
  EXPECT_THAT(loopback_hint("127.0.1.1"),
              HasSubstr("127.0.1.1 can be reached from its own machine only"));
  EXPECT_EQ(loopback_hint("192.0.2.1"), "");
}

}  // namespace
}  // namespace canzona::comm::meeting_point_test
