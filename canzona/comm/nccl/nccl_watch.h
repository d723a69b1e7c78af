// The thread that watches over a rank's operations on lanes. For this folder's
// sources.
//
// Once a beat, all ranks tell each other over the control plane that they are
// there, and whether an operation is late. If one is, every rank tells how far
// each of its groups has come, and all find the same culprit. The thread closes
// the world then and aborts NCCL; it does the same as soon as it learns that
// another rank has given up.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "canzona/comm/communicator.h"
#include "canzona/comm/nccl/nccl_world.h"

namespace canzona {

class NcclWatch {
 public:
  // `beats` has all ranks, and nobody else uses it.
  NcclWatch(NcclWorld& world, std::unique_ptr<Transport> beats);
  // Ends the thread at once; the other ranks' watches get PeerLost unless they
  // end, too.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // Ends the thread together with those of all other ranks, who call it, too.
  void finish();
  // Closes the world and has NCCL aborted; the other ranks are told.
  void abort(std::string_view reason);

 private:
  enum class Wish { kNone, kFinish, kAbort };

  void run();
  // One beat; false if it was the last one. PeerLost if NCCL is to be aborted.
  bool beat();
  // Throws if NCCL has failed by itself: with the lost rank's name where the
  // control plane knows it.
  void require_health();
  [[noreturn]] void blame();
  void give_up(const std::string& reason);
  Wish wait_for_beat();

  NcclWorld& world_;
  Communicator beats_;
  std::mutex mutex_;  // of both below
  std::condition_variable changed_;
  Wish wish_ = Wish::kNone;
  std::thread thread_;  // last: it uses all the others
};

}  // namespace canzona
