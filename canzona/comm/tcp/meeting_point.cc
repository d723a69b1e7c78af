#include "canzona/comm/tcp/meeting_point.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "canzona/base/text.h"

namespace canzona::comm {
namespace {

std::string first_label(const std::string& host) {
  return host.substr(0, host.find('.'));
}

bool is_own_name(const std::string& host, const std::string& own) {
  const std::string label = first_label(host);
  return label != "localhost" &&
         ::strcasecmp(label.c_str(), first_label(own).c_str()) == 0;
}

// Returns the address from which this machine would send to a far one; "" if it
// has no route there. Nothing is sent: the far address is one of those reserved
// for documentation.
std::string address_of_route() {
  const Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in far{};
  far.sin_family = AF_INET;
  far.sin_port = htons(9);
  far.sin_addr.s_addr = htonl(0xC0000201);  // 192.0.2.1
  if (!socket.is_open() ||
      ::connect(socket.file(), reinterpret_cast<const sockaddr*>(&far),
                sizeof(far)) != 0)
    return "";
  return own_endpoint(socket).host;
}

bool is_network_address(const ifaddrs& entry, int family) {
  if (entry.ifa_addr == nullptr || entry.ifa_addr->sa_family != family ||
      (entry.ifa_flags & IFF_UP) == 0 || (entry.ifa_flags & IFF_LOOPBACK) != 0)
    return false;
  return family != AF_INET6 ||
         !IN6_IS_ADDR_LINKLOCAL(
             &reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr);
}

// Returns the first address of a network that this machine is in, or "".
std::string address_of_interface() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next)
      if (is_network_address(*entry, family))
        return numeric_host(*entry->ifa_addr);
  return "";
}

}  // namespace

std::string node_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

Machine this_machine() {
  return {node_name(), resolves_to_loopback, [] {
            const std::string address = address_of_route();
            return address.empty() ? address_of_interface() : address;
          }};
}

Endpoint network_endpoint(const Endpoint& meeting, const Machine& machine) {
  if (!is_own_name(meeting.host, machine.name) ||
      !machine.is_loopback(meeting.host))
    return meeting;
  const std::string address = machine.address();
  return {address.empty() ? meeting.host : address, meeting.port};
}

std::string loopback_hint(const std::string& address) {
  if (!resolves_to_loopback(address)) return "";
  return cat("; ", address,
             " can be reached from its own machine only: if ranks are on "
             "others, meet at an address of rank 0's network (--rendezvous, "
             "MASTER_ADDR)");
}

}  // namespace canzona::comm
