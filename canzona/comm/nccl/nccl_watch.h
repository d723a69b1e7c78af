// The thread that watches over a rank's operations on lanes. Internal to this
// folder.
//
// With every heartbeat, all ranks tell each other over the control plane that
// they are alive and whether an operation is late. If one is, every rank
// reports how far each of its groups has come, and all find the same culprit.
// The thread then closes the world and aborts NCCL; it does the same when it
// learns that another rank has given up.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "canzona/comm/communicator.h"
#include "canzona/comm/nccl/nccl_world.h"

namespace canzona::comm {

class NcclWatch {
 public:
  // `beats` has all ranks; nobody else may use it.
  NcclWatch(NcclWorld& world, std::unique_ptr<Transport> beats);
  // Ends the thread at once; the other ranks' watches get PeerLost unless they
  // end, too.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // Ends the thread together with those of all other ranks, which must all call
  // this.
  void finish();
  // Closes the world, aborts NCCL and tells the other ranks.
  void abort(std::string_view reason);

 private:
  enum class Wish { kNone, kFinish, kAbort };

  void run();
  // Does one heartbeat; returns false if it was the last. Throws PeerLost if
  // NCCL must be aborted.
  bool beat();
  // Throws if NCCL itself has failed, naming the lost rank if the control plane
  // knows it.
  void require_health();
  [[noreturn]] void blame();
  void give_up(const std::string& reason);
  Wish wait_for_beat();

  NcclWorld& world_;
  Communicator beats_;
  std::mutex mutex_;  // guards both below
  std::condition_variable changed_;
  Wish wish_ = Wish::kNone;
  std::thread thread_;  // last, because it uses the other members
};

}  // namespace canzona::comm
