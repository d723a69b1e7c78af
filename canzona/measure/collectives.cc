#include "canzona/measure/collectives.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/memory.h"
#include "canzona/runtime/engine_lanes.h"

namespace canzona::measure {
namespace {

using CollectiveClock = std::chrono::steady_clock;

// Memory of the device.
class TrialMemory {
 public:
  TrialMemory(const WireOps& ops, int64_t bytes)
      : ops_(ops),
        bytes_(bytes),
        memory_(ops.allocate(std::max<int64_t>(bytes, 64))) {}
  ~TrialMemory() { ops_.release(memory_); }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;

  std::span<std::byte> all() const {
    return {memory_, static_cast<size_t>(bytes_)};
  }

 private:
  const WireOps& ops_;
  int64_t bytes_;
  std::byte* memory_;
};

// The sizes of the ranks' pieces in a series of trials.
struct PieceSizes {
  std::string name;
  std::vector<int64_t> counts;  // elements by rank
};

// Divides the elements among the ranks in proportion to their shares.
std::vector<int64_t> divide(int64_t elements,
                            const std::vector<int64_t>& shares) {
  double all = 0;
  for (const int64_t share : shares) all += static_cast<double>(share);
  std::vector<int64_t> counts;
  for (const int64_t share : shares)
    counts.push_back(static_cast<int64_t>(static_cast<double>(elements) *
                                          static_cast<double>(share) / all));
  return counts;
}

// Returns equal pieces, and pieces that grow from zero.
std::vector<PieceSizes> pieces_of(const CollectivesRequest& request) {
  const int64_t elements = request.bytes / 4;
  const std::vector<int64_t> equal(static_cast<size_t>(request.num_ranks), 1);
  std::vector<int64_t> growing = equal;
  if (request.num_ranks > 1)
    std::iota(growing.begin(), growing.end(), int64_t{0});
  return {{"equal", divide(elements, equal)},
          {"unequal", divide(elements, growing)}};
}

// One rank's share in all trials.
class CollectiveTrials {
 public:
  CollectiveTrials(Communicator& world, const CollectivesRequest& request)
      : world_(world),
        request_(request),
        host_ops_(memory_ops(request.device)) {
    if (request.make_lane) {
      lane_ = request.make_lane();
      mark_ = lane_->make_mark();
      group_ = world.split_ordered(0, world.rank(), "collectives", lane_);
    } else {
      group_ = world.split(0, world.rank(), "collectives", {}, &host_ops_);
    }
    const int64_t most = request.bytes + int64_t{64} * world.size();
    input_ = std::make_unique<TrialMemory>(host_ops_, most);
    output_ = std::make_unique<TrialMemory>(host_ops_, most);
    clear(input_->all());
  }

  Collectives run() {
    const int64_t elements = request_.bytes / 4;
    for (const auto& [kind, counts] : pieces_of(request_)) {
      gather(counts, kind);
      exchange(counts, kind);
      add(counts, Reduction::kFp32Sum, kind);
      add(counts, Reduction::kFp32SumOfBf16, cat(kind, ", bf16 on the wire"));
    }
    add_everywhere(elements);
    broadcast(elements);
    time_copy();
    return found_;
  }

 private:
  std::span<std::byte> in(int64_t bytes) const {
    return input_->all().first(static_cast<size_t>(bytes));
  }
  std::span<std::byte> out(int64_t bytes) const {
    return output_->all().first(static_cast<size_t>(bytes));
  }
  int64_t own(const std::vector<int64_t>& counts) const {
    return counts[static_cast<size_t>(world_.rank())];
  }

  // Clears the memory, because sums of random bits may be slow.
  void clear(std::span<std::byte> memory) {
    const std::vector<std::byte> zeros(size_t{1} << 20);
    for (size_t at = 0; at < memory.size(); at += zeros.size())
      host_ops_.copy(
          memory.data() + at, zeros.data(),
          static_cast<int64_t>(std::min(zeros.size(), memory.size() - at)));
  }

  void settle() {
    if (lane_ == nullptr) return;
    lane_->record(*mark_);
    mark_->wait();
  }

  // Returns the seconds of the slowest rank, the minimum over rounds after one
  // warm-up.
  template <class Work>
  double time(const Work& work) {
    double least = std::numeric_limits<double>::infinity();
    for (int round = 0; round <= request_.rounds; ++round) {
      world_.barrier();
      const auto begin = CollectiveClock::now();
      work();
      settle();
      const std::chrono::duration<double> took = CollectiveClock::now() - begin;
      const double slowest = largest_of(world_, took.count());
      if (round > 0) least = std::min(least, slowest);
    }
    return least;
  }

  template <class Work>
  void measure(Operation operation, std::string what, const Work& work) {
    if (request_.progress && world_.rank() == 0)
      request_.progress(cat(to_string(operation), ", ", what));
    const int64_t before = group_->traffic().of(operation).sent;
    const double seconds = time(work);
    const int64_t sent =
        (group_->traffic().of(operation).sent - before) / (request_.rounds + 1);
    found_.rows.push_back({std::string(to_string(operation)), std::move(what),
                           std::ranges::max(one_from_all(world_, sent)),
                           seconds});
  }

  // Writes a number that says whose piece it is.
  void put(std::span<std::byte> memory, int64_t offset, float value) {
    host_ops_.copy(memory.data() + offset,
                   reinterpret_cast<const std::byte*>(&value), 4);
  }
  void expect(std::span<const std::byte> memory, int64_t offset, float value,
              const std::string& what) {
    float found = 0;
    host_ops_.copy(reinterpret_cast<std::byte*>(&found), memory.data() + offset,
                   4);
    if (found != value)
      throw InternalError(cat("bench collectives: rank ", world_.rank(), ": ",
                              what, " gave ", found, " instead of ", value));
  }

  void gather(const std::vector<int64_t>& counts, const std::string& kind) {
    std::vector<int64_t> bytes;
    for (const int64_t count : counts) bytes.push_back(count * 4);
    const int64_t all = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    const int64_t mine = own(bytes);
    const auto work = [&] { group_->all_gather_v(in(mine), bytes, out(all)); };
    if (mine > 0) put(in(mine), 0, static_cast<float>(world_.rank() + 1));
    work();
    settle();
    int64_t place = 0;
    for (size_t rank = 0; rank < bytes.size(); place += bytes[rank++])
      if (bytes[rank] > 0)
        expect(out(all), place, static_cast<float>(rank + 1), "all_gather_v");
    measure(Operation::kAllGather, kind, work);
  }

  // Every rank sends rank r its count.
  void exchange(const std::vector<int64_t>& counts, const std::string& kind) {
    const auto n = static_cast<size_t>(world_.size());
    std::vector<int64_t> to(n), from(n), to_places(n), from_places(n);
    int64_t sent = 0, received = 0;
    for (size_t rank = 0; rank < n; ++rank) {
      to[rank] = counts[rank] * 4 / world_.size() / 4 * 4;
      from[rank] = own(counts) * 4 / world_.size() / 4 * 4;
      to_places[rank] = std::exchange(sent, sent + to[rank]);
      from_places[rank] = std::exchange(received, received + from[rank]);
    }
    measure(Operation::kAllToAll, kind, [&] {
      group_->all_to_all_v({in(sent), to, to_places},
                           {out(received), from, from_places});
    });
  }

  void add(const std::vector<int64_t>& counts, Reduction reduction,
           const std::string& what) {
    const int64_t all =
        std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t mine = own(counts);
    const auto work = [&] {
      group_->reduce_scatter_v(reduction, in(all * 4), counts, out(mine * 4));
    };
    int64_t place = 0;
    for (const int64_t count : counts) {
      if (count > 0)
        put(in(all * 4), place * 4, static_cast<float>(world_.rank() + 1));
      place += count;
    }
    work();
    settle();
    const int n = world_.size();
    if (mine > 0)
      expect(out(mine * 4), 0, static_cast<float>(n * (n + 1) / 2),
             "reduce_scatter_v");
    measure(Operation::kReduceScatter, what, work);
  }

  void add_everywhere(int64_t elements) {
    measure(Operation::kAllReduce, "fp32",
            [&] { group_->all_reduce(Reduction::kFp32Sum, in(elements * 4)); });
    measure(Operation::kAllReduce, "int64, largest of 1",
            [&] { group_->all_reduce(Reduction::kInt64Max, in(8)); });
  }

  void broadcast(int64_t elements) {
    measure(Operation::kBroadcast, "from rank 0",
            [&] { group_->broadcast(0, in(elements * 4)); });
  }

  void time_copy() {
    const WireOps& ops = lane_ != nullptr ? lane_->ops() : host_ops_;
    found_.copy_seconds = time([&] {
      ops.copy(output_->all().data(), input_->all().data(), request_.bytes);
    });
  }

  Communicator& world_;
  const CollectivesRequest& request_;
  const EngineWireOps host_ops_;
  std::shared_ptr<Lane> lane_;
  std::unique_ptr<Mark> mark_;
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<TrialMemory> input_, output_;
  Collectives found_;
};

void check_request(const CollectivesRequest& request) {
  if (request.bytes < int64_t{4} * request.num_ranks * request.num_ranks)
    throw UsageError(cat("bytes ", request.bytes, ": expected at least ",
                         int64_t{4} * request.num_ranks * request.num_ranks,
                         " for ", request.num_ranks, " ranks"));
}

}  // namespace

Collectives measure_collectives(const CollectivesRequest& request) {
  check_request(request);
  return on_every_rank(request.run, {}, [&](Communicator& world) {
    const bool own_memory = device_kind(request.device).has_own_memory;
    const int64_t free = own_memory ? cuda_free_bytes() : 0;
    try {
      return CollectiveTrials(world, request).run();
    } catch (const std::bad_alloc&) {
      if (!own_memory) throw;
      throw UsageError(
          cat("bytes ", human_bytes(request.bytes), ": every rank needs ",
              human_bytes(2 * request.bytes),
              " and up to 64 MiB to stage sums, in addition to NCCL's memory, "
              "but only ",
              human_bytes(free), " of GPU memory are free; give fewer"));
    }
  });
}

}  // namespace canzona::measure
