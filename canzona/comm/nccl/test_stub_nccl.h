// For tests: an NCCL stub whose ranks are threads and whose memory is the
// host's. A stream is a TestLane.
//
//   NcclSession session(std::move(control), stub_nccl(), {});
//
// It is at least as strict as NCCL: nothing is launched before a communicator's
// state was queried twice, ranks that launch different operations get an error,
// and a rank waits for a peer until it comes or its own communicator is
// aborted.
#pragma once

#include <string>
#include <vector>

#include "canzona/comm/nccl/nccl_library.h"
#include "canzona/comm/nccl/nccl_session.h"
#include "canzona/comm/test_lane.h"

namespace canzona::comm {

const NcclApi& stub_nccl();

// One launch of a rank; a record keeps them in order while it lives.
struct StubLaunch {
  int64_t group = 0;
  std::string what;  // "all_gather 128", "messages"

  bool operator==(const StubLaunch&) const = default;
};
class StubRecord {
 public:
  explicit StubRecord(int num_ranks);
  ~StubRecord();
  StubRecord(const StubRecord&) = delete;
  StubRecord& operator=(const StubRecord&) = delete;
  // By the rank of the lane.
  const std::vector<StubLaunch>& of(int rank) const {
    return launches_[static_cast<size_t>(rank)];
  }
  void add(int rank, StubLaunch launch);

 private:
  std::vector<std::vector<StubLaunch>> launches_;
};

// Sets what ncclGetVersion returns on this thread.
void set_stub_version(int version);
// Makes ncclCommAbort hang; with false it returns again, and hanging calls end.
void hang_stub_aborts(bool hang);
// Makes every communicator report that a peer's process has closed its
// connections.
void close_stub_connections(bool closed);
// The number of allocations of ncclMemAlloc in use.
int num_stub_allocated();

// Counts memory accesses of operations since the last call.
struct StubMemoryUse {
  int num_looks = 0;           // reads or writes of some length
  int num_unregistered = 0;    // of these, not registered with the communicator
  int num_freed_too_soon = 0;  // pieces that were still registered
  int num_registered = 0;      // ranges that are registered now
  int num_windows = 0;         // of them, as windows
  const char* last_unregistered = "";  // "reading"
  size_t last_bytes = 0;               // of it
};
StubMemoryUse take_stub_memory_use();

}  // namespace canzona::comm
