// Owns MPI from initialization to finalization, and makes the group of all
// ranks.
//
//   MpiSession session;
//   Communicator world(session.make_world(), cpu_wire_ops(), options, "world");
//   train(world);
//   session.finish();
//
// There is one per process. finish() waits for all ranks and finalizes MPI;
// call it after the last operation. A session that is destroyed without it,
// because of an error, tells the other ranks. MPI cannot be finalized then,
// because that would wait for ranks that are gone: leave the process by
// exit_at_once().
//
//   } catch (const PeerLost& error) {
//     session.abort(error.what());
//     std::cerr << error.what() << "\n";
//     exit_at_once(4);
//   }
//
// A process on the same machine that ends without finish(), perhaps killed, is
// noticed within milliseconds; one that is stopped is noticed when a deadline
// expires. Every rank then gets PeerLost naming it. docs/mpi.md says how to
// launch.
//
// In a build without MPI the constructor throws UsageError.
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
// Returns "Open MPI v4.1.4, …", or that this build has no MPI.
std::string mpi_description();

struct MpiOptions {
  // Longer messages are sent in chunks of this size, because MPI counts in int.
  int64_t part_bytes = int64_t{1} << 30;
  // For tests: every collective of this process passes through the gate first.
  Gate* gate = nullptr;
};

class MpiSession {
 public:
  // Initializes MPI for several threads. Throws UsageError if the library does
  // not support that or MPI was initialized before.
  explicit MpiSession(const MpiOptions& options = {});
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const;
  int size() const;
  // The host names, by rank.
  const std::vector<std::string>& nodes() const;
  // The number of ranks per node if all nodes have the same number of
  // consecutive ranks, otherwise 0.
  int ranks_per_node() const;

  // Makes a group of all ranks with messages of its own. All ranks must call
  // it; throws PeerLost if one does not come in time. Destroy transports before
  // the session.
  std::unique_ptr<Transport> make_world(
      std::chrono::nanoseconds time = std::chrono::minutes(1));

  // Ends all operations of all ranks with PeerLost and this reason.
  void abort(std::string_view reason);

  // Ends the session in an orderly way. Throws PeerLost, naming the ranks that
  // do not come in time. If all came and MPI's own finalization then takes
  // longer than `time`, because a rank has stopped since, the process says so
  // and exits with status 4.
  void finish(std::chrono::nanoseconds time = std::chrono::minutes(1));
  // The same without MPI's own finalization, which never returns while mpirun
  // is ending its ranks after a signal. Leave by exit_at_once().
  void finish_unfinalized(
      std::chrono::nanoseconds time = std::chrono::minutes(1));

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Flushes the standard streams and ends the process without destructors and
// without finalizing MPI, which could block forever. It first waits a third of
// a second so that other ranks can report what they saw: a launcher kills them
// once the first rank has exited.
[[noreturn]] void exit_at_once(int status) noexcept;

}  // namespace canzona
