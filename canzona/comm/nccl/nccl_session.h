// Groups of ranks whose operations NCCL carries out on lanes of a device, and
// the watch over them.
//
//   TcpSession tcp({…});                               // or MPI, or threads
//   NcclSession session(tcp.make_world(), load_nccl(), {});
//   Communicator world(session.make_world(), cpu_wire_ops(), options, "world");
//   auto dp = world.split_ordered(t, d, "dp", lane);   // by NCCL
//   train(world, *dp);
//   session.finish();
//   tcp.finish();
//
// The ranks have come together by another transport, the control plane: names,
// NCCL's ids and failures travel over it, and so does everything of the host's
// memory. `world` above is such a group; a group that is split off with a lane
// has communicators of NCCL: at most two for a set of ranks, however many
// groups there are, and none for one rank. One process, or one thread of a
// test, has one session, and one thread issues all operations of its groups:
// NCCL hangs if ranks differ in the order of their operations.
//
// An operation has been issued when it returns; a thread of the session watches
// its deadline. When one is late, every rank tells how far its groups have
// come, and all get PeerLost that names the operation, its label and who is
// behind; a rank that says nothing is named, too. NCCL is aborted then; if that
// or the device does not return within `patience`, the process is ended.
// finish() waits for all ranks; it comes after the last operation and the last
// group.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/comm/library_memory.h"
#include "canzona/comm/nccl/nccl_api.h"
#include "canzona/comm/transport.h"

namespace canzona {

struct NcclOptions {
  // The kind of this rank's device: "NVIDIA H200". All ranks have one kind.
  std::string device = {};
  // This very device, on any machine; "": not known. Two ranks have two devices
  // unless they may share one.
  std::string device_id = {};
  bool share_devices = false;
  // Blocks that a kernel of NCCL may take; 0: as NCCL likes. kNoCtas: copies
  // are made by the copy engines where memory is registered (2.28 and newer).
  static constexpr int kNoCtas = -1;
  int ctas = 0;
  // Messages pass through the library's own memory, registered with every
  // communicator that uses it, as a window (so that the library may read and
  // write that of other ranks, and copy engines may move it) or by itself; or
  // through the device's plain memory. kAuto: the first of these that the
  // library has.
  enum class Memory { kAuto, kWindows, kRegistered, kPlain };
  Memory memory = Memory::kAuto;
  // Bytes of the device's memory that are free now; empty: nobody measures what
  // NCCL takes of it.
  std::function<int64_t()> free_memory = {};
  // The deadline of the control plane's own operations, and of founding a
  // group.
  std::chrono::nanoseconds deadline = std::chrono::minutes(10);
  // The period at which ranks tell each other that they are there.
  std::chrono::nanoseconds beat = std::chrono::milliseconds(500);
  std::chrono::nanoseconds patience = std::chrono::milliseconds(1250);
  // Ends this process, at once; empty: the words go to standard error, and the
  // exit status is ExitStatus::kPeerLost.
  std::function<void(const std::string& why)> end_process = {};
};

// "8" or "zero", as NcclOptions has it; UsageError names --nccl-ctas.
int parse_nccl_ctas(std::string_view text);
// "auto", "windows", "registered" or "plain"; UsageError names --nccl-memory.
NcclOptions::Memory parse_nccl_memory(std::string_view text);
std::string_view to_string(NcclOptions::Memory memory);

class NcclSession {
 public:
  // `control` has all ranks, who all call it; `nccl` outlives the session.
  // UsageError names two ranks that differ in NCCL's version or in their kind
  // of device or that have one device, and what this NCCL cannot do.
  NcclSession(std::unique_ptr<Transport> control, const NcclApi& nccl,
              const NcclOptions& options);
  // Without finish(), because of an error: NCCL is aborted.
  ~NcclSession();
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;

  // A group of all ranks, of the host's memory. All ranks call it. Transports
  // end before the session.
  std::unique_ptr<Transport> make_world();

  // The number of NCCL communicators that this rank has.
  int num_communicators() const;
  // The memory that messages pass through; never kAuto.
  NcclOptions::Memory memory_kind() const;
  // Returns what each communicator takes, in the order of their founding; empty
  // unless NcclOptions::free_memory tells.
  std::vector<LibraryMemory> memory() const;

  // Ends all operations of all ranks with PeerLost that tells the reason.
  void abort(std::string_view reason);

  // The orderly end. PeerLost, naming them, if ranks do not come in time.
  void finish(std::chrono::nanoseconds time = std::chrono::minutes(1));

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace canzona
