// How fast are exact sums in the memory of a GPU?
//
//   build-cuda/bench/device_sums [--json]
//
// kernel      one kernel adds 2 to 32 pieces in the order of the tree, in fp32,
//             from bf16, and in fp32 with the rounding to bf16 in it: bytes
//             read and written in a second, beside those of a copy from device
//             to device in the same run
// ranks       a reduce-scatter of 1 GiB over 8 ranks that are threads and share
//             the GPU: with segments of the host's size and one addition after
//             the other; with one kernel for a segment; and on lanes, where
//             every rank reads the others' memory in place
#include <algorithm>
#include <cstdio>

#include "bench/table.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/memory.h"
#include "canzona/measure/clock.h"
#include "canzona/runtime/engine_lanes.h"

namespace canzona::bench {
namespace {

constexpr int kSumTrials = 7;
// About what the host has; the very number would mean the device's own.
constexpr int64_t kHostSegment = 520 << 10;

double least_seconds(const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < kSumTrials; ++i) {
    const double begin = wall_seconds();
    work();
    best = std::min(best, wall_seconds() - begin);
  }
  return best;
}

class DeviceBytes {
 public:
  explicit DeviceBytes(int64_t bytes)
      : data_(memory_ops("cuda").allocate(bytes)) {}
  ~DeviceBytes() { memory_ops("cuda").release(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
};

// Additions one after the other, as a device does that has no kernel for it.
class StepwiseOps : public EngineWireOps {
 public:
  using EngineWireOps::EngineWireOps;
  bool sum_at_once(Reduction, std::span<const std::byte* const>, int64_t,
                   std::byte*) const override {
    return false;
  }
};

void time_kernel(bool json) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const MemoryOps& memory = memory_ops("cuda");
  const EngineWireOps ops(memory);
  const DeviceBytes from(kBytes), to(kBytes);
  const double copy_s =
      least_seconds([&] { memory.copy(to.data(), from.data(), kBytes); });
  const double copy_rate = 2.0 * kBytes / copy_s;
  Table table(cat("sums beside a copy of ", copy_rate / 1e9, " GB/s"),
              {"pieces", "GB/s", "of the copy's"});
  for (const Reduction reduction :
       {Reduction::kFp32Sum, Reduction::kFp32SumOfBf16})
    for (const int pieces : {2, 4, 8, 32}) {
      const int64_t wire = wire_bytes(reduction);
      const int64_t count = kBytes / pieces / wire / 1024 * 1024;
      std::vector<const std::byte*> at;
      for (int p = 0; p < pieces; ++p)
        at.push_back(from.data() + p * count * wire);
      const double seconds = least_seconds(
          [&] { ops.sum_at_once(reduction, at, count, to.data()); });
      const double rate =
          static_cast<double>(count * (pieces * wire + 4)) / seconds;
      table.add(cat(pieces, " ", to_string(reduction)),
                {rate / 1e9, rate / copy_rate});
    }
  for (const int pieces : {2, 4, 8, 32}) {
    const int64_t count = kBytes / pieces / 4 / 1024 * 1024;
    std::vector<const std::byte*> at;
    for (int p = 0; p < pieces; ++p) at.push_back(from.data() + p * count * 4);
    const double seconds = least_seconds([&] {
      ops.sum_in_place(Reduction::kFp32SumOfBf16, at, count, to.data());
    });
    const double rate = static_cast<double>(count * (pieces * 4 + 4)) / seconds;
    table.add(cat(pieces, " rounded in the kernel"),
              {rate / 1e9, rate / copy_rate});
  }
  table.print(json);
}

// Without `ops` on lanes.
double time_ranks(const WireOps* ops, int64_t segment) {
  constexpr int kRanks = 8;
  constexpr int64_t kElements = int64_t{1} << 28;
  double best = 1e9;
  RunOptions options;
  if (segment > 0) options.communicator.segment_bytes = segment;
  run_ranks(kRanks, options, [&](Communicator& world) {
    const auto engine = make_cuda_engine();
    const auto lane = std::make_shared<EngineLane>(engine->make_lane());
    const auto done = lane->make_mark();
    const auto group = ops != nullptr
                           ? world.split(0, world.rank(), "gpu", {}, ops)
                           : world.split_ordered(0, world.rank(), "gpu", lane);
    const DeviceBytes data(kElements * 4);
    const std::vector<int64_t> counts(kRanks, kElements / kRanks);
    const auto all = std::span(data.data(), static_cast<size_t>(kElements * 4));
    const auto own =
        all.subspan(static_cast<size_t>(world.rank()) * all.size() / kRanks,
                    all.size() / kRanks);
    for (int trial = 0; trial < 3; ++trial) {
      world.barrier();
      const double begin = wall_seconds();
      group->reduce_scatter_v(Reduction::kFp32Sum, all, counts, own);
      lane->record(*done);
      done->wait();
      world.barrier();
      if (world.rank() == 0) best = std::min(best, wall_seconds() - begin);
    }
  });
  return best;
}

void run(bool json) {
  std::string why;
  if (!find_cuda_device(&why)) throw UsageError(why);
  time_kernel(json);
  Table table("reduce-scatter of 1 GiB over 8 ranks on one GPU",
              {"way", "ms", "times as fast"});
  const StepwiseOps stepwise(memory_ops("cuda"));
  const EngineWireOps ops(memory_ops("cuda"));
  const double before = time_ranks(&stepwise, kHostSegment);
  const double waiting = time_ranks(&ops, 0);
  const double on_lanes = time_ranks(nullptr, 0);
  table.add("addition by addition", {before * 1e3, 1});
  table.add("one kernel", {waiting * 1e3, before / waiting});
  table.add("on lanes, in place", {on_lanes * 1e3, before / on_lanes});
  table.print(json);
}

}  // namespace
}  // namespace canzona::bench

int main(int argc, char** argv) {
  return canzona::bench::run_program(argc, argv, canzona::bench::run);
}
