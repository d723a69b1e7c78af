// Sockets with owners and deadlines. For this folder's sources.
//
//   Socket listener = listen_on({"127.0.0.1", 0});
//   Socket peer = connect_to(endpoint, deadline);
//   send_all(peer, bytes, deadline);
//
// None blocks; none is inherited by children; none raises SIGPIPE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "canzona/comm/transport.h"

namespace canzona {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  Socket(Socket&& other) noexcept : file_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  bool is_open() const { return file_ >= 0; }
  int file() const { return file_; }
  void close() noexcept;
  int release() noexcept {
    const int file = file_;
    file_ = -1;
    return file;
  }

 private:
  int file_ = -1;
};

struct Endpoint {
  std::string host;  // a name or an address; of IPv6 without brackets
  int port = 0;
};
// "node1:29500", "[::1]:29500". UsageError says what is expected.
Endpoint parse_endpoint(std::string_view text);
std::string to_string(const Endpoint& endpoint);

// UsageError, with the address, if it is not this machine's or is taken. Port
// 0: any that is free.
Socket listen_on(const Endpoint& endpoint);
// The endpoint of this side, and of the other.
Endpoint own_endpoint(const Socket& socket);
Endpoint peer_endpoint(const Socket& socket);
// A new connection; not open if there is none.
Socket accept_from(const Socket& listener);

// Tries until somebody listens there. UsageError if there is no such host;
// PeerLost after the deadline.
Socket connect_to(const Endpoint& endpoint, Deadline until);
// The beginning of it: the socket can be written to when it is there, and
// connection_error() tells whether it is. Only for addresses.
Socket begin_connection(const Endpoint& address);
int connection_error(const Socket& socket);

// All of it; false if the other side is gone or the deadline has passed.
bool send_all(const Socket& socket, std::span<const std::byte> bytes,
              Deadline until);
bool receive_all(const Socket& socket, std::span<std::byte> bytes,
                 Deadline until);

// As much as passes at once.
struct Passed {
  size_t bytes = 0;
  bool ended = false;  // the other side has closed, or is gone
};
Passed send_some(const Socket& socket, std::span<const std::byte> bytes);
Passed receive_some(const Socket& socket, std::span<std::byte> bytes);

// No more is sent; what was, arrives.
void end_sending(const Socket& socket) noexcept;

// Wakes a thread that sleeps in poll().
class WakeUp {
 public:
  WakeUp();
  ~WakeUp();
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  int file() const { return file_; }
  void signal() const noexcept;
  void clear() const noexcept;

 private:
  int file_;
};

// Milliseconds for poll(): rounded up, at least 0, at most `most`.
int poll_time(Deadline until, int most);

}  // namespace canzona
