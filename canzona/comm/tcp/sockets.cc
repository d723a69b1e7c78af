#include "canzona/comm/tcp/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

using SocketClock = std::chrono::steady_clock;
using std::chrono_literals::operator""ms;

constexpr int kMostPort = 65535;
constexpr auto kRetryEvery = 20ms;

std::string words_of(int code) { return std::strerror(code); }

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses addresses_of(const Endpoint& endpoint, int flags) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int failed =
      ::getaddrinfo(endpoint.host.c_str(),
                    std::to_string(endpoint.port).c_str(), &wanted, &list);
  if (failed != 0)
    throw UsageError(cat("host ", quoted(endpoint.host),
                         " cannot be resolved: ", ::gai_strerror(failed)));
  return Addresses(list);
}

Socket open_socket(const addrinfo& address) {
  Socket socket(::socket(address.ai_family,
                         SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (socket.is_open())
    ::setsockopt(socket.file(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

Endpoint endpoint_of(const sockaddr& address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(&address, size, host.data(), host.size(), port.data(),
                    port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    throw Error("an address of a connection cannot be read");
  return {host.data(), std::atoi(port.data())};
}

Endpoint endpoint_of(const sockaddr_storage& address, socklen_t size) {
  return endpoint_of(reinterpret_cast<const sockaddr&>(address), size);
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(
        &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  const auto& four = reinterpret_cast<const sockaddr_in&>(address);
  return ntohl(four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

bool would_block(int code) {
  return code == EAGAIN || code == EWOULDBLOCK || code == EINTR;
}

// Returns false after the deadline.
bool wait_for(const Socket& socket, short events, Deadline until) {
  constexpr int kMostMilliseconds = 1000;
  pollfd file{socket.file(), events, 0};
  while (true) {
    if (::poll(&file, 1, poll_time(until, kMostMilliseconds)) > 0) return true;
    if (SocketClock::now() >= until) return false;
  }
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    file_ = other.release();
  }
  return *this;
}

void Socket::close() noexcept {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

Endpoint parse_endpoint(std::string_view text) {
  const auto refuse = [&]() -> UsageError {
    return UsageError(
        cat(quoted(text), ": expected HOST:PORT, such as node1:29500"));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) throw refuse();
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.front() == '[') {
    if (host.back() != ']') throw refuse();
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    throw refuse();
  }
  int port = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (host.empty() || error != std::errc() ||
      end != digits.data() + digits.size() || port < 0 || port > kMostPort)
    throw refuse();
  return {std::string(host), port};
}

std::string to_string(const Endpoint& endpoint) {
  const bool six = endpoint.host.find(':') != std::string::npos;
  return cat(six ? "[" : "", endpoint.host, six ? "]:" : ":", endpoint.port);
}

bool resolves_to_loopback(const std::string& host) {
  const Addresses addresses = addresses_of({host, 0}, 0);
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next)
    if (!is_loopback(*a->ai_addr)) return false;
  return true;
}

std::string numeric_host(const sockaddr& address) {
  return endpoint_of(address, address.sa_family == AF_INET6
                                  ? sizeof(sockaddr_in6)
                                  : sizeof(sockaddr_in))
      .host;
}

Socket listen_on(const Endpoint& endpoint) {
  const Addresses addresses = addresses_of(endpoint, AI_PASSIVE);
  Socket socket = open_socket(*addresses);
  const int on = 1;
  if (socket.is_open())
    ::setsockopt(socket.file(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!socket.is_open() ||
      ::bind(socket.file(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      ::listen(socket.file(), SOMAXCONN) != 0)
    throw UsageError(
        cat("cannot listen at ", to_string(endpoint), ": ", words_of(errno)));
  return socket;
}

Endpoint own_endpoint(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  ::getsockname(socket.file(), reinterpret_cast<sockaddr*>(&address), &size);
  return endpoint_of(address, size);
}

Endpoint peer_endpoint(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getpeername(socket.file(), reinterpret_cast<sockaddr*>(&address),
                    &size) != 0)
    return {"nobody", 0};
  return endpoint_of(address, size);
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.file(), nullptr, nullptr,
                          SOCK_NONBLOCK | SOCK_CLOEXEC));
  const int on = 1;
  if (socket.is_open())
    ::setsockopt(socket.file(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

int connection_error(const Socket& socket) {
  int code = 0;
  socklen_t size = sizeof(code);
  if (::getsockopt(socket.file(), SOL_SOCKET, SO_ERROR, &code, &size) != 0)
    return errno;
  return code;
}

Socket begin_connection(const Endpoint& address) {
  const Addresses addresses = addresses_of(address, AI_NUMERICHOST);
  Socket socket = open_socket(*addresses);
  if (!socket.is_open()) return socket;
  if (::connect(socket.file(), addresses->ai_addr, addresses->ai_addrlen) !=
          0 &&
      errno != EINPROGRESS)
    socket.close();
  return socket;
}

Socket connect_to(const Endpoint& endpoint, Deadline until) {
  std::string why = "no answer";
  do {
    const Addresses addresses = addresses_of(endpoint, 0);
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      Socket socket = open_socket(*a);
      if (!socket.is_open()) continue;
      int code = 0;
      if (::connect(socket.file(), a->ai_addr, a->ai_addrlen) != 0) {
        code = errno;
        if (code == EINPROGRESS)
          code = wait_for(socket, POLLOUT, until) ? connection_error(socket)
                                                  : ETIMEDOUT;
      }
      if (code == 0) return socket;
      const std::string at = numeric_host(*a->ai_addr);
      why = cat(at == endpoint.host ? "" : at + ": ", words_of(code));
    }
    std::this_thread::sleep_for(kRetryEvery);
  } while (SocketClock::now() < until);
  throw PeerLost(cat("no connection with ", to_string(endpoint), ": ", why));
}

Passed send_some(const Socket& socket, std::span<const std::byte> bytes) {
  Passed passed;
  while (passed.bytes < bytes.size()) {
    const ssize_t sent =
        ::send(socket.file(), bytes.data() + passed.bytes,
               bytes.size() - passed.bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      passed.ended = !would_block(errno);
      break;
    }
    passed.bytes += static_cast<size_t>(sent);
  }
  return passed;
}

Passed receive_some(const Socket& socket, std::span<std::byte> bytes) {
  Passed passed;
  while (passed.bytes < bytes.size()) {
    const ssize_t got = ::recv(socket.file(), bytes.data() + passed.bytes,
                               bytes.size() - passed.bytes, MSG_DONTWAIT);
    if (got <= 0) {
      passed.ended = got == 0 || !would_block(errno);
      break;
    }
    passed.bytes += static_cast<size_t>(got);
  }
  return passed;
}

bool send_all(const Socket& socket, std::span<const std::byte> bytes,
              Deadline until) {
  while (true) {
    const Passed passed = send_some(socket, bytes);
    bytes = bytes.subspan(passed.bytes);
    if (bytes.empty()) return true;
    if (passed.ended || !wait_for(socket, POLLOUT, until)) return false;
  }
}

bool receive_all(const Socket& socket, std::span<std::byte> bytes,
                 Deadline until) {
  while (true) {
    const Passed passed = receive_some(socket, bytes);
    bytes = bytes.subspan(passed.bytes);
    if (bytes.empty()) return true;
    if (passed.ended || !wait_for(socket, POLLIN, until)) return false;
  }
}

void end_sending(const Socket& socket) noexcept {
  if (socket.is_open()) ::shutdown(socket.file(), SHUT_WR);
}

WakeUp::WakeUp() : file_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (file_ < 0)
    throw Error(cat("no more files can be opened: ", words_of(errno)));
}
WakeUp::~WakeUp() { ::close(file_); }

void WakeUp::signal() const noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(file_, &one, sizeof(one));
}
void WakeUp::clear() const noexcept {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(file_, &count, sizeof(count));
}

int poll_time(Deadline until, int most) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - SocketClock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, most));
}

}  // namespace canzona
