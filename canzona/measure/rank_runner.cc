#include "canzona/measure/rank_runner.h"

#include "canzona/linalg/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/courier.h"
#include "canzona/comm/from_all.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/device_memory.h"
#include "canzona/measure/step_times.h"

namespace canzona::measure {

bool is_too_fast(const Link& link, double copy_bytes_per_second) {
  return link &&
         std::max(link->intra_bytes_per_second, link->inter_bytes_per_second) >
             0.25 * copy_bytes_per_second;
}

void put_link(const Link& link, PlanOptions& options) {
  if (!link) return;
  options.links = {link->intra_bytes_per_second, link->inter_bytes_per_second,
                   link->latency_seconds, /*nominal=*/false};
  options.ranks_per_node = link->ranks_per_node;
}

LinkModel scaled_link(const Link& link, const Plan& plan, std::string_view name,
                      double ratio, double compute,
                      const std::function<double(const LinkModel&)>& sending) {
  constexpr double kNominalBandwidth = 1e9;
  LinkModel scaled =
      link.value_or(LinkModel{.intra_bytes_per_second = kNominalBandwidth,
                              .inter_bytes_per_second = kNominalBandwidth,
                              .ranks_per_node = plan.options.ranks_per_node});
  const double seconds = sending(scaled);
  if (seconds == 0)
    throw UsageError(cat("a ratio of communication to compute of ", ratio, ": ",
                         name, " sends nothing on ", to_string(plan.mesh)));
  const double factor = seconds / (ratio * compute);
  scaled.intra_bytes_per_second *= factor;
  scaled.inter_bytes_per_second *= factor;
  return scaled;
}

RankRunner with_gpu_shares(RankRunner run) {
  return
      [run = std::move(run)](const Link& link, const RankFunction& function) {
        run(link, [&function](Communicator& world) {
          const CudaShare share(world.rank(), world.size());
          function(world);
        });
      };
}

RankRunner on_threads(int num_ranks, const CommunicatorOptions& options,
                      Gate* gate) {
  return [=](const Link& link, const RankFunction& function) {
    RunOptions run;
    run.communicator = options;
    run.world.link = link;
    run.world.gate = gate;
    run_ranks(num_ranks, run, function);
  };
}

namespace {

constexpr int kSharedRounds = 7;
constexpr int64_t kSide = 512;
constexpr double kFlops = 2.0 * kSide * kSide * kSide;  // of a product

// Returns seconds by round.
template <class Work>
std::vector<double> time_rounds(Communicator& world, const Work& work) {
  std::vector<double> seconds(kSharedRounds, 0);
  for (double& of_round : seconds) {
    world.barrier({.label = "before a measurement"});
    const double begin = wall_seconds();
    work();
    of_round = wall_seconds() - begin;
  }
  world.barrier({.label = "after a measurement"});
  return seconds;
}

template <class Work>
double median_of_slowest(Communicator& world, const Work& work) {
  return median_of(slowest(from_all<double>(world, time_rounds(world, work))));
}

Matrices noise(DeviceMemory& memory, uint64_t seed) {
  return matrices(elements<float>(memory.noise(kSide * kSide, seed)), kSide,
                  kSide);
}

double time_plain(Communicator& world, Engine& engine, int num_products) {
  DeviceMemory memory(engine);
  const Matrices a = noise(memory, 1), b = noise(memory, 2),
                 c = noise(memory, 3);
  return median_of_slowest(world, [&] {
    for (int i = 0; i < num_products; ++i)
      engine.product(c, 1, a, Op::kNone, b, Op::kNone, 0);
    engine.synchronize();
  });
}

double time_bf16(Communicator& world, Engine& engine, int num_products) {
  DeviceMemory memory(engine);
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  Algebra& algebra = engine.algebra(DType::kBf16);
  Operand x = algebra.wide(arena, kSide, kSide, 1, false);
  Operand y = algebra.wide(arena, kSide, kSide, 1, false);
  Operand r = algebra.symmetric(arena, kSide, 1);
  algebra.load_normalized(x, {.source = noise(memory, 1)}, {});
  algebra.gram(r, x, Half::kTriangle);
  return median_of_slowest(world, [&] {
    for (int i = 0; i < num_products; ++i) algebra.multiply(y, r, x);
    engine.synchronize();
  });
}

constexpr int kMeetings = 40;

// Repeats `beside` until all ranks have met.
template <class Beside>
double meeting_seconds(Communicator& world, Courier& courier,
                       const Beside& beside) {
  world.barrier({.label = "before meetings"});
  const double begin = wall_seconds();
  Work last;
  for (int i = 0; i < kMeetings; ++i) last = courier.barrier();
  while (!last.done()) beside(last);
  last.wait();
  return largest_of(world, (wall_seconds() - begin) / kMeetings);
}

}  // namespace

SharedMeetings measure_shared_meetings(Communicator& world, Engine& engine) {
  DeviceMemory memory(engine);
  const Matrices a = noise(memory, 1), b = noise(memory, 2),
                 c = noise(memory, 3);
  const std::unique_ptr<Communicator> group =
      world.split(0, world.rank(), "meetings");
  Courier courier(*group, kMeetings);
  SharedMeetings out;
  out.idle = meeting_seconds(world, courier, [](Work& last) { last.wait(); });
  out.beside_compute = meeting_seconds(world, courier, [&](Work&) {
    engine.product(c, 1, a, Op::kNone, b, Op::kNone, 0);
    engine.synchronize();
  });
  return out;
}

double measure_copy_rate(Communicator& world) {
  constexpr size_t kBytes = 8 << 20;
  const std::vector<std::byte> from(kBytes, std::byte{1});
  std::vector<std::byte> to(kBytes);
  const std::vector<double> seconds =
      time_rounds(world, [&] { std::memcpy(to.data(), from.data(), kBytes); });
  return kBytes / largest_of(world, std::ranges::min(seconds));
}

double measure_fp32_rate(Communicator& world, Engine& engine) {
  constexpr int kProducts = 8;
  return kProducts * kFlops / time_plain(world, engine, kProducts);
}

double measure_flop_rate(Communicator& world, Engine& engine, DType precision) {
  constexpr int kProducts = 2;
  const auto time = precision == DType::kBf16 ? time_bf16 : time_plain;
  return kProducts * kFlops / time(world, engine, kProducts);
}

MachineLimits measure_limits(Communicator& world, Engine& engine) {
  const double flops = measure_fp32_rate(world, engine);
  const double copies = measure_copy_rate(world);
  return {flops, copies, measure_shared_meetings(world, engine)};
}

}  // namespace canzona::measure
