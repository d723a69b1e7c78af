#include "canzona/measure/matrix_seconds.h"

#include <algorithm>

#include "canzona/comm/from_all.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/device_memory.h"
#include "canzona/measure/step_times.h"
#include "canzona/rules/optimizer.h"

namespace canzona {
namespace {

double least_of(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

// Groups steps by their position in a period, without the first one, which
// allocates and in some rules does other work. The most expensive position is
// the one that refreshes.
template <class TimedStep, class Typical>
MatrixSeconds seconds_by_place(const RuleFacts& facts, MatrixShape shape,
                               int rounds, const TimedStep& timed_step,
                               const Typical& typical) {
  const auto period = static_cast<size_t>(facts.period());
  std::vector<std::vector<double>> times(period);
  timed_step();
  for (int round = 0; round < rounds; ++round)
    for (std::vector<double>& place : times) place.push_back(timed_step());
  std::vector<double> places;
  for (const std::vector<double>& place : times)
    places.push_back(typical(place));
  std::sort(places.begin(), places.end());
  const double dearest = places.back();
  if (places.size() > 1) places.pop_back();
  MatrixSeconds out{.shape = shape, .seconds = typical(places)};
  if (facts.work(shape).refresh.value() > 0)
    out.refresh_seconds = std::max(dearest - out.seconds, 1e-9);
  return out;
}

// Returns enough matrices to exceed a core's share of the caches.
int64_t batch_on_cpu(const RuleFacts& facts, MatrixShape shape) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  constexpr int64_t kMost = 64;
  int64_t bytes = 2 * shape.rows * shape.cols * kBytesPerFp32;
  for (const StateFact& state : facts.states(shape))
    bytes += state.bytes().value();
  return std::clamp<int64_t>(kBytes / bytes, 1, kMost);
}

// Returns enough matrices to fill a GPU, as an owner of several would have.
int64_t batch_on_gpu(MatrixShape shape) {
  constexpr int64_t kGpuElements = int64_t{1} << 27;
  return std::clamp<int64_t>(kGpuElements / (shape.rows * shape.cols), 1, 64);
}

// Matrices of one shape with their own optimizer.
class TimedMatrices {
 public:
  TimedMatrices(Engine& engine, const CostSubject& subject, MatrixShape shape,
                int64_t batch)
      : memory_(engine),
        optimizer_(make_rule(subject.rule, subject.options, DType::kFp32,
                             engine.kind()),
                   tensors(shape, batch), {&engine},
                   {.on_nonfinite = OnNonfinite::kPropagate}) {}

  const RuleFacts& facts() const { return optimizer_.rule().facts(); }
  void step() { optimizer_.step(1e-3); }

 private:
  std::vector<Optimizer::Tensor> tensors(MatrixShape shape, int64_t batch) {
    const int64_t count = shape.rows * shape.cols;
    std::vector<Optimizer::Tensor> out;
    for (int64_t i = 0; i < batch; ++i)
      out.push_back({"matrix",
                     {shape.rows, shape.cols},
                     memory_.noise(count, 1),
                     memory_.noise(count, static_cast<uint64_t>(i) + 2)});
    return out;
  }

  DeviceMemory memory_;
  Optimizer optimizer_;
};

}  // namespace

MatrixSeconds measure_on_cpu(Communicator& world, const CostSubject& subject,
                             MatrixShape shape, int rounds) {
  const auto engine = make_engine("cpu");
  const int64_t batch =
      batch_on_cpu(*make_rule_facts(subject.rule, subject.options), shape);
  TimedMatrices matrices(*engine, subject, shape, batch);
  const auto timed_step = [&] {
    world.barrier({.label = "before a measurement"});
    return seconds_of(1, [&] { matrices.step(); });
  };
  MatrixSeconds out = seconds_by_place(
      matrices.facts(), shape, rounds, timed_step,
      [&](const std::vector<double>& seconds) {
        return world.size() == 1 ? least_of(seconds) : median_of(seconds);
      });
  out.batch = batch;
  out.seconds = median_of(one_from_all(world, out.seconds));
  out.refresh_seconds = median_of(one_from_all(world, out.refresh_seconds));
  return out;
}

MatrixSeconds measure_on_gpu(Engine& engine, const CostSubject& subject,
                             MatrixShape shape, int rounds) {
  const int64_t batch = batch_on_gpu(shape);
  TimedMatrices matrices(engine, subject, shape, batch);
  const auto timed_step = [&] {
    engine.synchronize();
    const double begin = wall_seconds();
    matrices.step();
    engine.synchronize();
    return wall_seconds() - begin;
  };
  timed_step();
  MatrixSeconds out =
      seconds_by_place(matrices.facts(), shape, rounds, timed_step, least_of);
  out.batch = batch;
  return out;
}

}  // namespace canzona
