#include "canzona/comm/from_all.h"
#include "canzona/linalg/stages.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/device_memory.h"
#include "canzona/measure/matrix_seconds.h"
#include "canzona/measure/step_times.h"

namespace canzona {
namespace {

constexpr int64_t kElements = int64_t{1} << 24;
constexpr int kRounds = 5;
// Scaling and checking: one read, one write. AdamW: the gradient is read;
// moments and weights are read and written.
constexpr int64_t kBytesPerElement = (2 + 7) * kBytesPerFp32;

}  // namespace

double measure_element_rate(Communicator& world) {
  const std::unique_ptr<Engine> cpu = make_engine("cpu");
  Engine& engine = *cpu;
  DeviceMemory memory(engine);
  const Run grad = memory.noise(kElements, 1);
  const Engine::AdamRuns runs{.grad = grad,
                              .m = memory.zeros(kElements),
                              .v = memory.zeros(kElements),
                              .weights = memory.noise(kElements, 2),
                              .count = kElements};
  const Engine::ScaledStretch whole{grad, kElements};
  const AdamCoefficients adam{.m_keep = 0.9,
                              .m_add = 0.1,
                              .v_keep = 0.999,
                              .v_add = 0.001,
                              .root_scale = 1,
                              .epsilon = 1e-8};
  const Apply apply{.step = -1e-3};
  std::vector<double> seconds;
  for (int round = 0; round <= kRounds; ++round) {
    world.barrier({.label = "before a measurement"});
    const double passes = seconds_of(1, [&] {
      engine.scale_and_look({&whole, 1}, 0.999);
      engine.adam_apply({&runs, 1}, adam, apply);
    });
    if (round > 0) seconds.push_back(passes);
  }
  return static_cast<double>(kBytesPerElement * kElements) /
         median_of(one_from_all(world, median_of(std::move(seconds))));
}

}  // namespace canzona
