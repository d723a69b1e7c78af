#include "canzona/comm/tcp/sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"

namespace canzona::comm::sockets_test {
namespace {

Deadline in_a_while() { return deadline_after(std::chrono::seconds(20)); }

TEST(Endpoints, AreAHostAndAPort) {
  EXPECT_EQ(parse_endpoint("node1:29500").host, "node1");
  EXPECT_EQ(parse_endpoint("node1:29500").port, 29500);
  EXPECT_EQ(parse_endpoint("[::1]:7").host, "::1");
  EXPECT_EQ(to_string(parse_endpoint("[::1]:7")), "[::1]:7");
  EXPECT_EQ(to_string(parse_endpoint("10.0.0.1:0")), "10.0.0.1:0");
}

TEST(Endpoints, NameWhatIsNone) {
  for (const char* text :
       {"", "node1", ":1", "node1:", "node1:x", "node1:-1", "node1:65536",
        "::1:5", "[]:5", "[::1:5", "node1:5 ", "node1:99999999999"}) {
    try {
      parse_endpoint(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("HOST:PORT")) << text;
    }
  }
}

TEST(Sockets, CarryBytesBothWays) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  const Socket one = connect_to(own_endpoint(listener), in_a_while());
  Socket other;
  while (!other.is_open()) other = accept_from(listener);
  std::vector<std::byte> sent(1 << 20), got(sent.size());
  for (size_t i = 0; i < sent.size(); ++i)
    sent[i] = static_cast<std::byte>(i * 7);
  size_t out = 0, in = 0;
  while (in < got.size()) {
    out += send_some(one, std::span(sent).subspan(out)).bytes;
    in += receive_some(other, std::span(got).subspan(in)).bytes;
  }
  EXPECT_EQ(got, sent);
  std::byte token{1};
  EXPECT_TRUE(send_all(other, {&token, 1}, in_a_while()));
  EXPECT_TRUE(receive_all(one, {&token, 1}, in_a_while()));
  end_sending(one);
  EXPECT_FALSE(receive_all(other, {&token, 1}, in_a_while()));
}

TEST(Sockets, NameAnAddressThatIsTakenOrUnknown) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  EXPECT_THROW(listen_on(own_endpoint(listener)), UsageError);
  EXPECT_THROW(listen_on({"192.0.2.1", 0}), UsageError);
  EXPECT_THROW(connect_to({"no.such.host.invalid", 1}, in_a_while()),
               UsageError);
  const Endpoint gone = own_endpoint(listen_on({"127.0.0.1", 0}));
  try {
    connect_to(gone, deadline_after(std::chrono::milliseconds(50)));
    ADD_FAILURE() << "connected";
  } catch (const PeerLost& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(to_string(gone)));
  }
}

}  // namespace
}  // namespace canzona::comm::sockets_test
