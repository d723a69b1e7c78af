// Sockets with owners and deadlines. Internal to this folder.
//
//   Socket listener = listen_on({"127.0.0.1", 0});
//   Socket peer = connect_to(endpoint, deadline);
//   send_all(peer, bytes, deadline);
//
// All sockets are non-blocking, are not inherited by children and do not raise
// SIGPIPE.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "canzona/comm/transport.h"

struct sockaddr;

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
  std::string host;  // a name or an address; IPv6 without brackets
  int port = 0;
};
// Parses "node1:29500" or "[::1]:29500"; throws UsageError with the expected
// form.
Endpoint parse_endpoint(std::string_view text);
std::string to_string(const Endpoint& endpoint);
// True if every address of a host is loopback. Throws UsageError if there is no
// such host.
bool resolves_to_loopback(const std::string& host);
// An address as text, without its port.
std::string numeric_host(const sockaddr& address);

// Throws UsageError, with the address, if it is not this machine's or is taken.
// Port 0 selects any free port.
Socket listen_on(const Endpoint& endpoint);
// The endpoints of this side and of the other.
Endpoint own_endpoint(const Socket& socket);
Endpoint peer_endpoint(const Socket& socket);
// Accepts a connection; the result is not open if there is none.
Socket accept_from(const Socket& listener);

// Retries until somebody listens there. Throws UsageError if there is no such
// host, PeerLost after the deadline.
Socket connect_to(const Endpoint& endpoint, Deadline until);
// Begins to connect: the socket becomes writable when the attempt is over, and
// connection_error() then gives its result. Takes numeric addresses only.
Socket begin_connection(const Endpoint& address);
int connection_error(const Socket& socket);

// Transfer everything, or return false if the other side is gone or the
// deadline has passed.
bool send_all(const Socket& socket, std::span<const std::byte> bytes,
              Deadline until);
bool receive_all(const Socket& socket, std::span<std::byte> bytes,
                 Deadline until);

// The result of transferring as much as possible without blocking.
struct Passed {
  size_t bytes = 0;
  bool ended = false;  // the other side has closed or is gone
};
Passed send_some(const Socket& socket, std::span<const std::byte> bytes);
Passed receive_some(const Socket& socket, std::span<std::byte> bytes);

// Closes the sending side; everything sent before still arrives.
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

// Returns the milliseconds to pass to poll(): rounded up, at least 0, at most
// `most`.
int poll_time(Deadline until, int most);

}  // namespace canzona
