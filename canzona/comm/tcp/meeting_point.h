// Finds the address behind the name at which ranks meet. Internal to this
// folder.
//
//   const Endpoint meeting = network_endpoint(parse_endpoint("node1:29500"));
//
// Debian's /etc/hosts gives a machine's own name the address 127.0.1.1. On that
// machine the name must still mean the address by which other machines reach
// it: otherwise rank 0 listens where they cannot connect, and its neighbours
// tell them a loopback address.
#pragma once

#include <functional>
#include <string>

#include "canzona/comm/tcp/sockets.h"

namespace canzona::comm {

// This machine's name.
std::string node_name();

struct Machine {
  std::string name;  // as it calls itself; a domain may follow
  // True if every address of a host is loopback. Throws UsageError if there is
  // no such host.
  std::function<bool(const std::string& host)> is_loopback;
  // The address by which others reach this machine; "" if there is none.
  std::function<std::string()> address;
};
Machine this_machine();

// Replaces the host by the machine's address if it is the machine's own name
// and means loopback there. Other names, addresses and "localhost" are kept.
Endpoint network_endpoint(const Endpoint& meeting,
                          const Machine& machine = this_machine());

// "; 127.0.0.1 can be reached from its own machine only: …", or "" for an
// address that others can reach.
std::string loopback_hint(const std::string& address);

}  // namespace canzona::comm
