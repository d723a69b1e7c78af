// Checks what a run depends on beside the processor: the disk of a folder, the
// limits of this process, and whether ranks reach each other.
//
//   DiskInfo disk = measure_disk(".");
//   ExchangeInfo exchange = measure_exchange("thread", on_threads(4, {}), 4);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "canzona/comm/lane.h"
#include "canzona/measure/rank_runner.h"

namespace canzona {

struct DiskInfo {
  std::string folder;
  int64_t free_bytes = -1;            // for this user; -1: unknown
  double write_bytes_per_second = 0;  // until they are on disk
  double commit_seconds = 0;  // of a small file: written, synced, renamed
  std::string problem = {};   // why writing fails; "" if it works
};
// Writes `bytes` to a temporary file in the folder, and removes it.
DiskInfo measure_disk(const std::string& folder,
                      int64_t bytes = int64_t{64} << 20);

// A limit of this process, from getrlimit(); -1: none.
struct ProcessLimit {
  std::string name;  // "open files"
  std::string unit;  // "bytes", or "" for a plain count
  int64_t soft = -1, hard = -1;
};
std::vector<ProcessLimit> process_limits();

// "ignored", "default" or "caught": what happens when this process writes to a
// pipe that has no reader.
std::string sigpipe_state();

// The result of a tiny all-to-all of all ranks.
struct ExchangeInfo {
  std::string transport;
  int num_ranks = 0;
  double seconds = 0;  // median of several
  std::string problem = {};
};
// Errors are returned as `problem`. With a lane, memory of its device is
// exchanged.
ExchangeInfo measure_exchange(
    const std::string& transport, const RankRunner& run, int num_ranks,
    const std::function<std::shared_ptr<Lane>()>& make_lane = {});

}  // namespace canzona
