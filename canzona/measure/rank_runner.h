// The ranks to measure, and the modelled links between them.
//
//   const RankRunner run = on_threads(4, {});
//   MachineLimits limits = on_every_rank(run, {}, [](Communicator& world) {…});
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "canzona/comm/communicator.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/linalg/engine.h"
#include "canzona/plan/plan.h"

namespace canzona::measure {

using Link = std::optional<LinkModel>;

// True if a modelled link is faster than a quarter of the copy rate, so that
// copies distort the measurement.
bool is_too_fast(const Link& link, double copy_bytes_per_second);

// Makes plans use the modelled links; does nothing without any.
void put_link(const Link& link, PlanOptions& options);

// Returns the link's bandwidths, or equal ones, scaled so that `sending` takes
// `ratio` times as long as `compute`. Throws UsageError naming the plan if it
// sends nothing.
LinkModel scaled_link(const Link& link, const Plan& plan, std::string_view name,
                      double ratio, double compute,
                      const std::function<double(const LinkModel&)>& sending);

// Calls the function on every rank of this process and returns when all have
// ended.
using RankRunner =
    std::function<void(const Link& link, const RankFunction& function)>;
// `gate` is for fault tests; it must outlive the runner.
RankRunner on_threads(int num_ranks, const CommunicatorOptions& options,
                      Gate* gate = nullptr);

// Returns the same ranks, each with an equal share of the GPU (CudaShare).
RankRunner with_gpu_shares(RankRunner run);

// Returns what `work` returned, which must be the same on all ranks.
template <class Work>
auto on_every_rank(const RankRunner& run, const Link& link, const Work& work) {
  std::mutex mutex;
  std::invoke_result_t<const Work&, Communicator&> result{};
  run(link, [&](Communicator& world) {
    auto own = work(world);
    const std::lock_guard lock(mutex);
    result = std::move(own);
  });
  return result;
}

// Measures how much ranks on one machine slow each other down through caches,
// memory and clock rate.
//
//   double copies = measure_copy_rate(world);
//   double flops = measure_flop_rate(world, *engine, DType::kFp32);
//
// All ranks must call at the same time.

// Bytes per second that the slowest rank copies while all do.
double measure_copy_rate(Communicator& world);

// The seconds that a meeting of background threads of all ranks takes, without
// data: while nothing else runs, and while all ranks compute. Every operation
// costs this in addition to its bytes, because threads wake up late and the
// last one counts.
struct SharedMeetings {
  double idle = 0;
  double beside_compute = 0;
};
SharedMeetings measure_shared_meetings(Communicator& world, Engine& engine);

// The flop/s of the slowest rank while all compute, from a few products; and in
// fp32, from more.
double measure_flop_rate(Communicator& world, Engine& engine, DType precision);
double measure_fp32_rate(Communicator& world, Engine& engine);

// What a rank does while all others do the same.
struct MachineLimits {
  double flops_per_second = 0;  // of fp32 products
  double copy_bytes_per_second = 0;
  SharedMeetings meetings;
};
MachineLimits measure_limits(Communicator& world, Engine& engine);

}  // namespace canzona::measure
