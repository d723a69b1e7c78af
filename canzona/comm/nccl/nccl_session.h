// Makes groups of ranks whose operations NCCL executes on lanes of a device,
// and watches over them.
//
//   TcpSession tcp({…});                               // or MPI, or threads
//   NcclSession session(tcp.make_world(), load_nccl(), {});
//   Communicator world(session.make_world(), cpu_wire_ops(), options, "world");
//   auto dp = world.split_ordered(t, d, "dp", lane);   // by NCCL
//   train(world, *dp);
//   session.finish();
//   tcp.finish();
//
// The ranks are connected by another transport, the control plane: names,
// NCCL's ids, failures and all host memory travel over it. `world` above is
// such a group. A group that is split off with a lane uses NCCL communicators:
// at most two for a set of ranks, however many groups there are, and none for a
// single rank. A process, or a thread of a test, has one session, and one
// thread issues all operations of its groups, because NCCL hangs if ranks issue
// in different orders.
//
// When an operation returns it has been issued; a thread of the session watches
// its deadline. When one is late, every rank reports how far its groups have
// come, and all get PeerLost naming the operation, its label and the ranks that
// are behind or silent. NCCL is then aborted; if that or the device does not
// return within `patience`, the process is ended. finish() waits for all ranks;
// call it after the last operation, when no group is left.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/comm/nccl/nccl_library.h"
#include "canzona/comm/transport.h"

namespace canzona {

struct NcclOptions {
  // The model of this rank's device: "NVIDIA H200". All ranks must have the
  // same.
  std::string device = {};
  // Identifies this device across machines; "" if not known. No two ranks may
  // have the same device unless share_devices is set.
  std::string device_id = {};
  bool share_devices = false;
  // Stages messages in ordinary device memory. Otherwise it is the library's
  // own, registered with every communicator that uses it: as a window where the
  // library has them, so that it may access other ranks' memory and copy engines
  // may move it.
  bool plain_memory = false;
  // Returns the free bytes of device memory, by which a lack of memory is told
  // from other errors; may be empty.
  std::function<int64_t()> free_memory = {};
  // The deadline of the control plane's own operations and of creating a group.
  std::chrono::nanoseconds deadline = std::chrono::minutes(10);
  // The period of the heartbeat between ranks.
  std::chrono::nanoseconds beat = std::chrono::milliseconds(500);
  std::chrono::nanoseconds patience = std::chrono::milliseconds(1250);
  // Ends this process at once. If empty, the reason goes to standard error and
  // the exit status is ExitStatus::kPeerLost.
  std::function<void(const std::string& why)> end_process = {};
};

class NcclSession {
 public:
  // `control` has all ranks, which must all call this; `nccl` must outlive the
  // session. Throws UsageError naming two ranks that differ in NCCL version or
  // device model or that share a device, or the feature that this NCCL lacks.
  NcclSession(std::unique_ptr<Transport> control, const NcclApi& nccl,
              const NcclOptions& options);
  // Aborts NCCL if finish() was not called because of an error.
  ~NcclSession();
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;

  // Makes a group of all ranks for host memory. All ranks must call it. Destroy
  // transports before the session.
  std::unique_ptr<Transport> make_world();

  // The number of NCCL communicators of this rank.
  int num_communicators() const;
  // Ends all operations of all ranks with PeerLost and this reason.
  void abort(std::string_view reason);

  // Ends the session in an orderly way. Throws PeerLost, naming the ranks that
  // do not come in time.
  void finish(std::chrono::nanoseconds time = std::chrono::minutes(1));

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace canzona
