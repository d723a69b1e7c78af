// MPI from its start to its end, and the group of all ranks.
//
//   MpiSession session;
//   Communicator world(session.make_world(), cpu_wire_ops(), options, "world");
//   train(world);
//   session.finish();
//
// One per process. finish() waits for all ranks and finalises MPI; it comes
// after the last operation. A session that ends without it, because of an
// error, tells the other ranks so; MPI cannot be finalised then, since that
// would wait for ranks that are gone: leave the process by exit_at_once().
//
//   } catch (const PeerLost& error) {
//     session.abort(error.what());
//     std::cerr << error.what() << "\n";
//     exit_at_once(4);
//   }
//
// A process of the same machine that ends without finish(), killed perhaps, is
// noticed within milliseconds, one that is stopped when a deadline has passed;
// then every rank gets PeerLost that names it. docs/mpi.md tells how to launch.
//
// A build without MPI has this class, too: the constructor throws UsageError.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/comm/transport.h"

namespace canzona {

class Gate;

bool mpi_is_built();
// "Open MPI v4.1.4, …", or that this build has no MPI.
std::string mpi_description();

struct MpiOptions {
  // A longer message goes in parts, because MPI counts in int.
  int64_t part_bytes = int64_t{1} << 30;
  // For tests: every collective of this process passes here first.
  Gate* gate = nullptr;
};

class MpiSession {
 public:
  // Starts MPI for several threads. UsageError if the library does not offer
  // that or MPI was started before.
  explicit MpiSession(const MpiOptions& options = {});
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const;
  int size() const;
  // The names of the machines, by rank.
  const std::vector<std::string>& nodes() const;
  // The number of ranks of every node, if all have the same number of
  // consecutive ranks; else 0.
  int ranks_per_node() const;

  // A group of all ranks with messages of its own. All ranks call it; PeerLost
  // if one does not come in time. Transports end before the session.
  std::unique_ptr<Transport> make_world(
      std::chrono::nanoseconds time = std::chrono::minutes(1));

  // Ends all operations of all ranks with PeerLost that tells the reason.
  void abort(std::string_view reason);

  // The orderly end. PeerLost, naming them, if ranks do not come in time. Where
  // all came and MPI's own end then takes longer than that, because one has
  // stopped since, the process says so and ends with exit status 4.
  void finish(std::chrono::nanoseconds time = std::chrono::minutes(1));

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Flushes the standard streams and ends the process, without destructors and
// without MPI's end, which could wait for ever. A third of a second passes
// first, in which the other ranks can say what they saw: a launcher kills them
// once it knows of the first that has gone.
[[noreturn]] void exit_at_once(int status) noexcept;

}  // namespace canzona
