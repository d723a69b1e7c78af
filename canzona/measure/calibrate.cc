#include "canzona/measure/calibrate.h"

#include <algorithm>
#include <map>
#include <set>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/device_memory.h"
#include "canzona/measure/step_times.h"
#include "canzona/rules/optimizer.h"

namespace canzona::measure {
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

namespace {

struct Measured {
  double element_rate = 0;
  std::vector<std::vector<MatrixSeconds>> seconds;  // by subject and shape
};

// Adds one measurement of a rule. Small shapes are measured only if they have
// an algorithm of their own, as products in fp32 have in a table of bf16.
void add_subject(CalibrateRequest& request, const RuleEntry& rule,
                 RuleOptions options, const std::vector<MatrixShape>& shapes,
                 const std::vector<MatrixShape>& refreshed) {
  const std::vector<MatrixShape> small = {
      {16, 64}, {32, 256}, {64, 64}, {64, 256}, {64, 1024}};
  options = with_device(rule.name, options, request.device);
  if (has_option(rule, "precision"))
    options.try_emplace("precision", request.precision);
  const auto facts = rule.make(options);
  const auto& own = facts->period() > 1 ? refreshed : shapes;
  request.subjects.push_back({rule.name, options, own});
  if (facts->algorithm(small.front()) != facts->algorithm(own.front()))
    request.subjects.push_back({rule.name, options, small});
}

CalibrateRequest every_rule(const std::string& device,
                            const std::string& precision,
                            const std::vector<MatrixShape>& shapes,
                            const std::vector<MatrixShape>& refreshed) {
  CalibrateRequest request{.device = device, .precision = precision};
  for (const RuleEntry& rule : rule_table())
    for (const RuleOptions& options : rule.calibrated)
      add_subject(request, rule, options, shapes, refreshed);
  return request;
}

std::string algorithm_of(const CostSubject& subject) {
  return make_rule_facts(subject.rule, subject.options)
      ->algorithm(subject.shapes.front());
}

template <class MeasureOne>
std::vector<std::vector<MatrixSeconds>> measure_subjects(
    const CalibrateRequest& request, const Progress& progress,
    const MeasureOne& measure_one) {
  std::vector<std::vector<MatrixSeconds>> all;
  for (const CostSubject& subject : request.subjects) {
    std::vector<MatrixSeconds>& list = all.emplace_back();
    for (const MatrixShape& shape : subject.shapes) {
      progress(
          cat(subject.rule, " ", algorithm_of(subject), " ", to_string(shape)));
      list.push_back(measure_one(subject, shape));
    }
  }
  return all;
}

// Every rank has the same answer; the first one is kept.
Measured measure_cpu(const CalibrateRequest& request,
                     const Progress& progress) {
  Measured measured;
  run_ranks(request.num_ranks, [&](Communicator& world) {
    const bool first = world.rank() == 0;
    const Progress say = first ? progress : [](const std::string&) {};
    say("passes over memory");
    Measured own{measure_element_rate(world), {}};
    own.seconds = measure_subjects(
        request, say, [&](const CostSubject& subject, MatrixShape shape) {
          return measure_on_cpu(world, subject, shape, request.rounds);
        });
    if (first) measured = std::move(own);
  });
  return measured;
}

Measured measure_gpu(const CalibrateRequest& request,
                     const Progress& progress) {
  progress("copying memory");
  Measured measured{measure_gpu_rates().copy_bytes_per_second, {}};
  const std::unique_ptr<Engine> engine = make_engine(request.device);
  measured.seconds = measure_subjects(
      request, progress, [&](const CostSubject& subject, MatrixShape shape) {
        return measure_on_gpu(*engine, subject, shape, request.rounds);
      });
  return measured;
}

void check(const CalibrateRequest& request, const MachineInfo& machine) {
  const bool host = !device_kind(request.device).has_own_memory;
  if (host && machine.blas.fallback_core)
    throw UsageError(cat("OpenBLAS runs its kernels for ", machine.blas.core,
                         " on this CPU; their times would make every plan "
                         "wrong, so nothing is measured (see canzona doctor)"));
  if (!host && request.num_ranks != 1)
    throw UsageError(cat("calibrate: ", request.num_ranks, " ranks on a ",
                         request.device, " device, expected 1"));
}

std::string device_text(const CalibrateRequest& request,
                        const MachineInfo& machine) {
  if (device_kind(request.device).has_own_memory)
    return make_engine(request.device)->describe();
  const std::string ranks = request.num_ranks == 1
                                ? "one core"
                                : cat(request.num_ranks, " cores at once");
  return cat(machine.cpu, ", ", ranks, ", ", machine.blas.library, " ",
             machine.blas.core);
}

void write_measurement(JsonWriter& json, const CostSubject& subject,
                       const std::vector<MatrixSeconds>& entries) {
  json.begin_object();
  json.field("rule", subject.rule).field("algorithm", algorithm_of(subject));
  json.member("options").begin_object();
  for (const auto& [name, value] : subject.options) json.field(name, value);
  json.end_object();
  json.member("entries").begin_array();
  for (const MatrixSeconds& entry : entries) {
    json.begin_object();
    json.field("rows", entry.shape.rows).field("cols", entry.shape.cols);
    if (entry.batch > 1) json.field("batch", entry.batch);
    json.field("seconds", entry.seconds);
    if (entry.refresh_seconds > 0)
      json.field("refresh_seconds", entry.refresh_seconds);
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace

CalibrateRequest cpu_calibration(const std::string& precision) {
  return every_rule("cpu", precision,
                    {{128, 512},
                     {256, 256},
                     {256, 1024},
                     {512, 512},
                     {512, 2048},
                     {1024, 1024},
                     {1024, 3072},
                     {2048, 2048}},
                    {{128, 512}, {256, 256}, {512, 512}, {512, 1024}});
}

CalibrateRequest gpu_calibration(const std::string& precision) {
  // Square shapes have factors of full rank, as real gradients have over time.
  return every_rule("cuda", precision,
                    {{512, 2048},
                     {768, 2048},
                     {1024, 1024},
                     {1024, 2048},
                     {1024, 4096},
                     {1024, 5120},
                     {1536, 4096},
                     {2048, 2048},
                     {2048, 4096},
                     {2048, 6144},
                     {2560, 4096},
                     {2560, 9728},
                     {4096, 4096},
                     {4096, 12288},
                     {5120, 5120},
                     {5120, 8192},
                     {5120, 17408},
                     {5120, 25600}},
                    {{512, 512}, {1024, 1024}, {2048, 2048}});
}

CalibrateRequest calibration_for(const Plan& plan) {
  const auto facts = make_rule_facts(plan.rule, plan.rule_options);
  const auto option = [&](const char* name, const char* otherwise) {
    const auto found = plan.rule_options.find(name);
    return found == plan.rule_options.end() ? otherwise : found->second;
  };
  CalibrateRequest request{.device = option("device", "cpu"),
                           .precision = option("precision", "fp32")};
  std::map<std::string, std::set<MatrixShape>> shapes;
  for (const Matrix& m : plan.matrices)
    if (m.rows > 0 && m.cols > 0)
      shapes[facts->algorithm(shape_of(m))].insert(
          {m.rows, m.cols / m.column_heads});
  for (const auto& [algorithm, own] : shapes)
    request.subjects.push_back(
        {plan.rule, plan.rule_options, {own.begin(), own.end()}});
  if (request.subjects.empty())
    request.subjects.push_back({kElementRule, {}, {{1024, 1024}}});
  return request;
}

std::string calibrate(const CalibrateRequest& request,
                      const MachineInfo& machine, const Progress& progress) {
  check(request, machine);
  const Measured measured = device_kind(request.device).has_own_memory
                                ? measure_gpu(request, progress)
                                : measure_cpu(request, progress);
  JsonWriter json(2);
  json.begin_object();
  json.field("format", "canzona.cost_table").field("version", 1);
  json.field("device", device_text(request, machine));
  json.field("kind", request.device).field("precision", request.precision);
  json.field("date", request.date);
  json.field("element_wise_bytes_per_second", measured.element_rate);
  json.member("measurements").begin_array();
  for (size_t i = 0; i < request.subjects.size(); ++i)
    write_measurement(json, request.subjects[i], measured.seconds[i]);
  json.end_array().end_object();
  return json.take() + "\n";
}

}  // namespace canzona::measure
