#include "canzona/measure/calibrate.h"

#include <algorithm>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/linalg/lanes.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/device_memory.h"
#include "canzona/rules/device_optimizer.h"
#include "canzona/rules/local_optimizer.h"

namespace canzona {
namespace {

struct Entry {
  MatrixShape shape;
  int64_t batch = 1;
  double seconds = 0;
  double refresh_seconds = 0;
};

std::vector<float> noise(MatrixShape shape, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(shape.rows * shape.cols));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(normal_at(seed, i));
  return values;
}

// Least seconds by step modulo the period, the first step aside: it takes
// memory and, in some rules, does other work. The dearest step of a period is
// the one that refreshes.
template <class TimedStep>
Entry entry_of(const RuleFacts& facts, MatrixShape shape, int rounds,
               const TimedStep& timed_step) {
  const int period = facts.period();
  std::vector<double> least(static_cast<size_t>(period),
                            std::numeric_limits<double>::max());
  timed_step();
  for (int t = 0; t < period * rounds; ++t) {
    double& slot = least[static_cast<size_t>(t % period)];
    slot = std::min(slot, timed_step());
  }
  std::sort(least.begin(), least.end());
  Entry entry{.shape = shape, .seconds = least.front()};
  if (facts.work(shape).refresh.value() > 0)
    entry.refresh_seconds = std::max(least.back() - least.front(), 1e-9);
  return entry;
}

Entry measure_on_cpu(const std::string& rule, const RuleOptions& options,
                     MatrixShape shape, int rounds, Lanes& lanes) {
  std::vector<float> weights = noise(shape, 1);
  const std::vector<float> grad = noise(shape, 2);
  LocalOptimizer optimizer(make_rule(rule, options, DType::kFp32),
                           {{"matrix",
                             {shape.rows, shape.cols},
                             run_of(weights.data()),
                             run_of(grad.data())}},
                           lanes, OnNonfinite::kPropagate);
  return entry_of(optimizer.rule().facts(), shape, rounds,
                  [&] { return seconds_of(1, [&] { optimizer.step(1e-3); }); });
}

// As many as fill a GPU, as an owner of several would.
int64_t batch_on_gpu(MatrixShape shape) {
  constexpr int64_t kElements = int64_t{1} << 27;
  return std::clamp<int64_t>(kElements / (shape.rows * shape.cols), 1, 64);
}

Entry measure_on_gpu(const std::string& rule, const RuleOptions& options,
                     MatrixShape shape, int rounds, Engine& engine) {
  DeviceMemory memory(engine);
  std::vector<DeviceOptimizer::Tensor> tensors;
  const int64_t batch = batch_on_gpu(shape);
  const int64_t count = shape.rows * shape.cols;
  for (int64_t i = 0; i < batch; ++i)
    tensors.push_back({"matrix",
                       {shape.rows, shape.cols},
                       memory.noise(count, 1),
                       memory.noise(count, static_cast<uint64_t>(i) + 2)});
  DeviceOptimizer optimizer(make_rule(rule, options, DType::kFp32, "cuda"),
                            tensors, {&engine}, {.checks_gradients = false});
  const auto timed_step = [&] {
    engine.synchronize();
    const double begin = wall_seconds();
    optimizer.step(1e-3);
    engine.synchronize();
    return wall_seconds() - begin;
  };
  timed_step();
  Entry entry = entry_of(optimizer.rule().facts(), shape, rounds, timed_step);
  entry.batch = batch;
  return entry;
}

struct Subject {
  std::string rule;
  RuleOptions options;
  const std::vector<MatrixShape>* shapes;
};

std::vector<Subject> subjects(const CalibrateRequest& request) {
  std::vector<Subject> all;
  for (const char* form : {"standard", "symmetric", "gram"})
    all.push_back({"muon",
                   {{"device", request.device},
                    {"precision", request.precision},
                    {"newton_schulz", form}},
                   &request.shapes});
  for (const char* rule : {"soap", "shampoo"})
    all.push_back(
        {rule,
         {{"device", request.device}, {"precondition_frequency", "3"}},
         &request.factored_shapes});
  all.push_back({"adamw", {}, &request.shapes});
  return all;
}

void write_measurement(JsonWriter& json, const Subject& subject,
                       const std::string& algorithm,
                       const std::vector<Entry>& entries) {
  json.begin_object();
  json.field("rule", subject.rule).field("algorithm", algorithm);
  json.member("options").begin_object();
  for (const auto& [name, value] : subject.options) json.field(name, value);
  json.end_object();
  json.member("entries").begin_array();
  for (const Entry& entry : entries) {
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

CalibrateRequest gpu_calibration() {
  CalibrateRequest request;
  request.device = "cuda";
  request.precision = "fp16";
  request.shapes = {{512, 2048},   {768, 2048},   {1024, 1024}, {1024, 2048},
                    {1024, 4096},  {1024, 5120},  {1536, 4096}, {2048, 2048},
                    {2048, 4096},  {2048, 6144},  {2560, 4096}, {2560, 9728},
                    {4096, 4096},  {4096, 12288}, {5120, 5120}, {5120, 8192},
                    {5120, 17408}, {5120, 25600}};
  // Square ones have factors of full rank, as real gradients have over time.
  request.factored_shapes = {{512, 512}, {1024, 1024}, {2048, 2048}};
  return request;
}

std::string calibrate(const CalibrateRequest& request,
                      const MachineInfo& machine, const Progress& progress) {
  if (request.device == "cpu" && machine.blas.fallback_core)
    throw UsageError(cat("OpenBLAS runs its kernels for ", machine.blas.core,
                         " on this CPU; their times would mislead every plan, "
                         "so nothing is measured (see canzona doctor)"));
  JsonWriter json(2);
  json.begin_object();
  json.field("format", "canzona.cost_table").field("version", 1);
  Lanes lanes(1, [&] { return make_engine(request.device); });
  const bool gpu = request.device == "cuda";
  json.field("device", gpu ? lanes.lane(0).describe()
                           : cat(machine.cpu, ", one core, ",
                                 machine.blas.library, " ", machine.blas.core));
  json.field("kind", request.device).field("precision", request.precision);
  json.field("date", request.date);
  progress("copying memory");
  json.field(
      "element_wise_bytes_per_second",
      (gpu ? measure_gpu_rates() : measure_rates()).copy_bytes_per_second);
  json.member("measurements").begin_array();
  for (const Subject& subject : subjects(request)) {
    std::vector<Entry> entries;
    const auto facts = make_rule_facts(subject.rule, subject.options);
    const std::string algorithm = facts->algorithm(subject.shapes->front());
    for (const MatrixShape& shape : *subject.shapes) {
      progress(cat(subject.rule, " ", algorithm, " ", to_string(shape)));
      entries.push_back(gpu ? measure_on_gpu(subject.rule, subject.options,
                                             shape, request.rounds,
                                             lanes.lane(0))
                            : measure_on_cpu(subject.rule, subject.options,
                                             shape, request.rounds, lanes));
    }
    write_measurement(json, subject, algorithm, entries);
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

}  // namespace canzona
