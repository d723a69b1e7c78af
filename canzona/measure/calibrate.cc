#include "canzona/measure/calibrate.h"

#include <algorithm>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/linalg/lanes.h"
#include "canzona/measure/clock.h"
#include "canzona/rules/local_optimizer.h"

namespace canzona {
namespace {

struct Entry {
  MatrixShape shape;
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
// memory and, in some rules, does other work.
std::vector<double> seconds_by_phase(LocalOptimizer& optimizer, int period,
                                     int rounds) {
  std::vector<double> least(static_cast<size_t>(period),
                            std::numeric_limits<double>::max());
  optimizer.step(1e-3);
  for (int t = 0; t < period * rounds; ++t) {
    double& slot = least[static_cast<size_t>(t % period)];
    slot = std::min(slot, seconds_of(1, [&] { optimizer.step(1e-3); }));
  }
  return least;
}

// The dearest step of a period is the one that refreshes.
Entry measure(const std::string& rule, const RuleOptions& options,
              MatrixShape shape, int rounds, Lanes& lanes) {
  std::vector<float> weights = noise(shape, 1);
  const std::vector<float> grad = noise(shape, 2);
  LocalOptimizer optimizer(make_rule(rule, options, DType::kFp32),
                           {{"matrix",
                             {shape.rows, shape.cols},
                             run_of(weights.data()),
                             run_of(grad.data())}},
                           lanes, OnNonfinite::kPropagate);
  const RuleFacts& facts = optimizer.rule().facts();
  std::vector<double> phases =
      seconds_by_phase(optimizer, facts.period(), rounds);
  std::sort(phases.begin(), phases.end());
  const bool refreshes = facts.work(shape).refresh.value() > 0;
  Entry entry{shape, phases.front(), 0};
  if (refreshes)
    entry.refresh_seconds = std::max(phases.back() - phases.front(), 1e-9);
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
                   {{"device", "cpu"},
                    {"precision", request.precision},
                    {"newton_schulz", form}},
                   &request.shapes});
  for (const char* rule : {"soap", "shampoo"})
    all.push_back({rule,
                   {{"device", "cpu"}, {"precondition_frequency", "3"}},
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
    json.field("seconds", entry.seconds);
    if (entry.refresh_seconds > 0)
      json.field("refresh_seconds", entry.refresh_seconds);
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace

std::string calibrate(const CalibrateRequest& request,
                      const MachineInfo& machine, const Progress& progress) {
  if (machine.blas.fallback_core)
    throw UsageError(cat("OpenBLAS runs its kernels for ", machine.blas.core,
                         " on this CPU; their times would mislead every plan, "
                         "so nothing is measured (see canzona doctor)"));
  JsonWriter json(2);
  json.begin_object();
  json.field("format", "canzona.cost_table").field("version", 1);
  json.field("device", cat(machine.cpu, ", one core, ", machine.blas.library,
                           " ", machine.blas.core));
  json.field("kind", "cpu").field("precision", request.precision);
  json.field("date", request.date);
  progress("copying memory");
  json.field("element_wise_bytes_per_second",
             measure_rates().copy_bytes_per_second);
  json.member("measurements").begin_array();
  Lanes lanes(1, [] { return make_cpu_engine(); });
  for (const Subject& subject : subjects(request)) {
    std::vector<Entry> entries;
    const auto facts = make_rule_facts(subject.rule, subject.options);
    const std::string algorithm = facts->algorithm(subject.shapes->front());
    for (const MatrixShape& shape : *subject.shapes) {
      progress(cat(subject.rule, " ", algorithm, " ", to_string(shape)));
      entries.push_back(
          measure(subject.rule, subject.options, shape, request.rounds, lanes));
    }
    write_measurement(json, subject, algorithm, entries);
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

}  // namespace canzona
