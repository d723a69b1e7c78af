// How long do collectives take? On ranks that are threads, with and without a
// modelled link, or on processes where mpirun starts this program:
//
//   build/bench/collectives [--json] [ranks]
//   mpirun -n 4 build/bench/collectives [--json]
//
// Milliseconds, the median of several rounds on rank 0, by bytes per rank.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "bench/table.h"
#include "canzona/base/text.h"
#include "canzona/comm/mpi/mpi_launch.h"
#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/comm/thread/run_ranks.h"

namespace canzona::bench {
namespace {

constexpr auto kBytes = {int64_t{4} << 10, int64_t{256} << 10, int64_t{4} << 20,
                         int64_t{64} << 20};

class Operations {
 public:
  Operations(Communicator& world, int64_t bytes)
      : world_(world),
        data_(static_cast<size_t>(bytes / 4)),
        share_(data_.size() / static_cast<size_t>(world.size())),
        counts_(static_cast<size_t>(world.size()),
                static_cast<int64_t>(share_.size())) {
    data_.resize(share_.size() * counts_.size());
    for (int64_t count : counts_) bytes_.push_back(4 * count);
  }

  void all_reduce() { world_.all_reduce(Reduction::kFp32Sum, whole()); }
  void reduce_scatter() {
    world_.reduce_scatter_v(Reduction::kFp32Sum, whole(), counts_,
                            std::as_writable_bytes(std::span(share_)));
  }
  void all_gather() {
    world_.all_gather_v(std::as_bytes(std::span(share_)), bytes_, whole());
  }
  void broadcast() { world_.broadcast(0, whole()); }

 private:
  std::span<std::byte> whole() {
    return std::as_writable_bytes(std::span(data_));
  }

  Communicator& world_;
  std::vector<float> data_, share_;
  std::vector<int64_t> counts_, bytes_;
};

double median_ms(Communicator& world, int num_rounds,
                 const std::function<void()>& operation) {
  std::vector<double> times;
  for (int round = 0; round <= num_rounds; ++round) {
    world.barrier();
    const auto begin = std::chrono::steady_clock::now();
    operation();
    const std::chrono::duration<double, std::milli> time =
        std::chrono::steady_clock::now() - begin;
    if (round > 0) times.push_back(time.count());
  }
  std::ranges::nth_element(times, times.begin() + num_rounds / 2);
  return times[static_cast<size_t>(num_rounds / 2)];
}

void measure(Communicator& world, const std::string& transport, bool json) {
  Table table(cat(world.size(), " ranks, ", transport, ": ms"),
              {"bytes", "all_reduce", "reduce_scatter", "all_gather",
               "broadcast", "barrier"});
  for (const int64_t bytes : kBytes) {
    const int rounds = bytes > (1 << 20) ? 9 : 101;
    Operations with(world, bytes);
    table.add(human_bytes(bytes),
              {median_ms(world, rounds, [&] { with.all_reduce(); }),
               median_ms(world, rounds, [&] { with.reduce_scatter(); }),
               median_ms(world, rounds, [&] { with.all_gather(); }),
               median_ms(world, rounds, [&] { with.broadcast(); }),
               median_ms(world, rounds, [&] { world.barrier(); })});
  }
  if (world.rank() == 0) table.print(json);
}

void measure_threads(int num_ranks, bool json) {
  run_ranks(num_ranks,
            [&](Communicator& world) { measure(world, "threads", json); });
  RunOptions linked;
  linked.world.link = parse_link_model("intra=1GB/s,inter=1GB/s,latency=20us");
  run_ranks(num_ranks, linked, [&](Communicator& world) {
    measure(world, "threads, modelled link of 1 GB/s and 20 us", json);
  });
}

void measure_processes(bool json) {
  MpiSession session;
  {
    Communicator world(session.make_world(), cpu_wire_ops(), {}, "world");
    measure(world, mpi_description(), json);
  }
  session.finish();
}

}  // namespace
}  // namespace canzona::bench

int main(int argc, char** argv) {
  bool json = false;
  int num_ranks = 4;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else {
      num_ranks = std::max(1, std::atoi(argv[i]));
    }
  }
  try {
    if (canzona::find_mpi_launch()) {
      canzona::bench::measure_processes(json);
    } else {
      canzona::bench::measure_threads(num_ranks, json);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    canzona::exit_at_once(1);
  }
}
