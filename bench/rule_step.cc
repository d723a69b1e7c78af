#include "bench/rule_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/lanes.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/device_memory.h"
#include "canzona/measure/step_times.h"
#include "canzona/rules/muon/facts.h"
#include "canzona/rules/muon/newton_schulz.h"
#include "canzona/rules/optimizer.h"
#include "canzona/rules/runs.h"

namespace canzona::bench {
namespace {

// Returns Gaussian numbers with one dominant direction, as in gradients.
std::vector<float> make_input(MatrixShape shape, int64_t batch) {
  const int64_t m = shape.rows, n = shape.cols;
  std::vector<float> values(static_cast<size_t>(m * n * batch));
  // Only a few are different: making one takes longer than transforming it.
  constexpr int64_t kDifferent = 4;
  for (int64_t b = 0; b < std::min(batch, kDifferent); ++b) {
    const auto seed = static_cast<uint64_t>(1000 + b);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const auto at = static_cast<uint64_t>(i * n + j);
        const double bump = 3 * normal_at(7, static_cast<uint64_t>(i)) *
                            normal_at(8, static_cast<uint64_t>(j));
        values[static_cast<size_t>(b * m * n) + at] =
            static_cast<float>(normal_at(seed, at) + 0.1 * bump);
      }
  }
  for (int64_t b = kDifferent; b < batch; ++b)
    std::copy_n(values.begin() + b % kDifferent * m * n, m * n,
                values.begin() + b * m * n);
  return values;
}

MuonFacts facts_of(const TransformRequest& request,
                   const std::string& algorithm, const std::string& precision) {
  RuleOptions options = request.options;
  options["device"] = request.device;
  options["newton_schulz"] = algorithm;
  options["precision"] = precision;
  // The options are measured as requested, small matrices in bf16 as well.
  RuleOptions all = MuonFacts(options).options();
  all["unsafe"] = "on";
  return MuonFacts(all);
}

struct Candidate {
  MuonFacts facts;
  Run out;
  TransformRow row;
};

// Computes the first matrix in fp64, by the form with the fewest flops.
std::vector<double> exact_result(const TransformRequest& request,
                                 const std::vector<float>& input) {
  const int64_t m = request.shape.rows, n = request.shape.cols;
  const std::vector<double> in(input.begin(), input.begin() + m * n);
  std::vector<double> out(in.size());
  const auto engine = make_cpu_engine();
  TransformRequest here = request;
  here.device = "cpu";
  orthogonalize(*engine, facts_of(here, "symmetric", "fp64"),
                matrices(in.data(), m, n), matrices(out.data(), m, n));
  return out;
}

double relative_error(const std::vector<float>& got,
                      const std::vector<double>& expected) {
  double difference = 0, total = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(got[i]) - expected[i];
    difference += d * d;
    total += expected[i] * expected[i];
  }
  return std::sqrt(difference / total);
}

// A CPU's lanes share the matrices; a GPU takes them all at once.
void run_once(Lanes& lanes, const TransformRequest& request, ConstRun input,
              Candidate& candidate) {
  const int64_t m = request.shape.rows, n = request.shape.cols;
  const ConstMatrices in = as_matrices(input, m, n, request.batch);
  const Matrices out = as_matrices(candidate.out, m, n, request.batch);
  double seconds = 0;
  if (!device_kind(request.device).computes_batches) {
    seconds = seconds_of(request.num_threads, [&] {
      lanes.for_each(request.batch, [&](Engine& lane, int64_t i) {
        orthogonalize(lane, candidate.facts, in.at(i), out.at(i));
      });
    });
  } else {
    Engine& engine = lanes.lane(0);
    engine.synchronize();
    const double begin = wall_seconds();
    engine.repeat([&] { orthogonalize(engine, candidate.facts, in, out); });
    engine.synchronize();
    seconds = wall_seconds() - begin;
  }
  candidate.row.seconds = std::min(candidate.row.seconds, seconds);
}

}  // namespace

void check_transform(const TransformRequest& request) {
  const int64_t m = request.shape.rows, n = request.shape.cols;
  if (m < 1 || n < 1 || request.batch < 1)
    throw UsageError(cat("a transform of ", request.batch, " matrices of ",
                         to_string(request.shape),
                         ": expected at least 1 everywhere"));
  const Bytes one = Bytes(kBytesPerFp32) * m * n * request.batch;
  const auto copies = static_cast<int64_t>(1 + request.algorithms.size() *
                                                   request.precisions.size());
  const int64_t memory = device_kind(request.device).has_own_memory
                             ? find_cuda_device(nullptr)->memory_bytes
                             : machine_info().memory_bytes;
  if ((one * copies).value() > memory / 2)
    throw UsageError(cat("a transform of ", request.batch, " matrices of ",
                         to_string(request.shape), " takes more than half of ",
                         "this machine's ", memory, " bytes"));
}

double transform_floor(const TransformRequest& request, const TransformRow& row,
                       const MachineRates& rates) {
  const bool packed = row.precision == "bf16" || row.precision == "fp16";
  const double gflops = packed ? rates.packed_gflops : rates.sgemm_gflops;
  const MuonFacts facts = facts_of(request, row.algorithm, row.precision);
  const auto flops =
      static_cast<double>(facts.work(request.shape).every_step.value());
  const double bytes = 8.0 * static_cast<double>(request.shape.rows) *
                       static_cast<double>(request.shape.cols);
  const auto batch = static_cast<double>(request.batch);
  const auto lanes = static_cast<double>(
      std::min<int64_t>(request.num_threads, request.batch));
  return batch / lanes *
         std::max(flops / (gflops * 1e9), bytes / rates.copy_bytes_per_second);
}

std::vector<TransformRow> measure_transform(const TransformRequest& request,
                                            const Progress& progress) {
  Lanes lanes(request.num_threads, [&] { return make_engine(request.device); });
  check_transform(request);
  progress("making the input");
  const std::vector<float> values = make_input(request.shape, request.batch);
  EngineMemory memory(lanes.lane(0));
  const ConstRun input = memory.put(values);
  std::vector<Candidate> candidates;
  for (const std::string& precision : request.precisions)
    for (const std::string& algorithm : request.algorithms)
      candidates.push_back(
          {facts_of(request, algorithm, precision),
           memory.zeros(static_cast<int64_t>(values.size())),
           {algorithm, precision, std::numeric_limits<double>::max(), 0}});
  progress("computing in fp64");
  const std::vector<double> exact = exact_result(request, values);

  // The first round allocates the memory that the others use.
  for (int round = 0; round <= request.rounds; ++round) {
    progress(cat("round ", round, " of ", request.rounds));
    for (Candidate& candidate : candidates) {
      if (round == 1)
        candidate.row.seconds = std::numeric_limits<double>::max();
      run_once(lanes, request, input, candidate);
    }
  }
  std::vector<TransformRow> rows;
  for (Candidate& candidate : candidates) {
    const auto first = static_cast<int64_t>(exact.size());
    candidate.row.error_vs_fp64 =
        relative_error(memory.get<float>(candidate.out.data, first), exact);
    rows.push_back(candidate.row);
  }
  return rows;
}

namespace {

constexpr double kRate = 1e-4;

MatrixShape shape_of(const Dims& dims) {
  if (dims.size() < 2) return {1, num_elements(dims)};
  return {dims[dims.size() - 2], dims[dims.size() - 1]};
}

int64_t matrices_in(const Dims& dims) {
  const MatrixShape shape = shape_of(dims);
  const int64_t each = shape.rows * shape.cols;
  return each == 0 ? 0 : num_elements(dims) / each;
}

// Weights, gradients and their copies; the optimizer owns the states.
class Tensors {
 public:
  Tensors(Engine& engine, const RuleStepRequest& request)
      : engine_(engine), memory_(engine) {
    int64_t largest = 0;
    for (size_t i = 0; i < request.tensors.size(); ++i) {
      const Dims& dims = request.tensors[i];
      const int64_t count = num_elements(dims);
      largest = std::max(largest, count);
      grads_.push_back(memory_.zeros(count));
      all.push_back({cat("tensor.", i), dims, memory_.noise(count, i, 0.02),
                     grads_.back(),
                     request.rounded ? memory_.rounded(count) : nullptr});
    }
    pool_ = memory_.noise(largest + kShifts, 1);
    renew_grads();
  }

  // Renews gradients, because constant ones would leave factors of low rank,
  // unlike real ones.
  void renew_grads() {
    for (size_t i = 0; i < all.size(); ++i) {
      const auto shift = static_cast<int64_t>(bits_at(9, drawn_++) % kShifts);
      const int64_t count = num_elements(all[i].dims);
      engine_.copy(as_row(grads_[i], count),
                   as_row(ConstRun(advanced(pool_, shift)), count));
    }
    engine_.synchronize();
  }

  std::vector<Optimizer::Tensor> all;

 private:
  static constexpr int64_t kShifts = int64_t{1} << 20;

  Engine& engine_;
  DeviceMemory memory_;
  std::vector<Run> grads_;
  Run pool_;
  uint64_t drawn_ = 0;
};

int64_t bytes_needed(const RuleStepRequest& request, const RuleFacts& facts) {
  int64_t bytes = 0;
  for (const Dims& dims : request.tensors) {
    bytes += num_elements(dims) * (request.rounded ? 10 : 8);
    for (const StateFact& fact : facts.tensor_states(dims))
      bytes += fact.elements() * 4;
  }
  return bytes;
}

// Leaves a third for everything else that a step needs.
void check_memory(int64_t needed, const RuleStepRequest& request) {
  int64_t there = machine_info().memory_bytes;
  if (device_kind(request.device).has_own_memory)
    there = find_cuda_device(nullptr)->memory_bytes;
  if (needed / 2 > there / 3)
    throw UsageError(cat(request.tensors.size(), " tensors with ", request.rule,
                         "'s states take ", human_bytes(needed),
                         ", more than two thirds of the device's ",
                         human_bytes(there), "; measure fewer layers"));
}

void measure_steps(Optimizer& optimizer, Engine& engine, Tensors& tensors,
                   const RuleStepRequest& request, const Progress& progress,
                   RuleStep& result) {
  const int period = optimizer.rule().facts().period();
  std::vector<double> host, whole;  // seconds of each step
  // Runs one step on an idle device, from the call to the end of its work.
  const auto step = [&] {
    tensors.renew_grads();
    const double begin = wall_seconds();
    optimizer.step(kRate);
    host.push_back(wall_seconds() - begin);
    engine.synchronize();
    whole.push_back(wall_seconds() - begin);
  };
  // The first steps allocate the memory that all later ones use.
  const int warm_up = std::max(period, 3);
  for (int t = 0; t < warm_up; ++t) {
    progress(cat("warming up, step ", t + 1, " of ", warm_up));
    step();
  }
  host.clear();
  whole.clear();
  const int rounds = std::max(2, (request.rounds + period - 1) / period);
  for (int i = 0; i < rounds * period; ++i) {
    progress(cat("round ", i / period + 1, " of ", rounds));
    step();
  }
  const StepTimes times = summarize_steps(whole, 0, period);
  result.seconds = times.mean;
  result.least_seconds = *std::min_element(whole.begin(), whole.end());
  result.median_seconds = median_of(whole);
  result.refresh_seconds = times.worst;
  result.host_seconds = median_of(host);
}

void count_work(const RuleStepRequest& request, const RuleFacts& facts,
                RuleStep& result) {
  std::map<std::string, std::string> algorithms;
  for (const Dims& dims : request.tensors) {
    const MatrixShape shape = shape_of(dims);
    const RuleWork work = facts.work(shape);
    const auto each =
        static_cast<double>(work.every_step.value()) +
        static_cast<double>(work.refresh.value()) / facts.period();
    const auto count = static_cast<double>(matrices_in(dims));
    const auto elements = static_cast<double>(num_elements(dims));
    result.flops += facts.needs_whole_matrix() ? each * count : 0;
    // Gradient and weights are read and weights written; every state as large
    // as the tensor is read and written; operands in a format of the rule's own
    // go once each way.
    double per_element = 12 + (request.rounded ? 2 : 0);
    for (const StateFact& fact : facts.tensor_states(dims))
      if (fact.elements() == num_elements(dims)) per_element += 8;
    per_element += static_cast<double>(facts.operand_bytes_per_element());
    result.bytes += per_element * elements;
    algorithms[to_string(shape)] = facts.algorithm(shape);
  }
  result.algorithms.assign(algorithms.begin(), algorithms.end());
}

// Returns the option's value; rules without it compute in fp32.
std::string type_option(const RuleFacts& facts, const char* name) {
  const RuleOptions options = facts.options();
  const auto found = options.find(name);
  return found == options.end() ? "fp32" : found->second;
}

void measure_peaks(const RuleStepRequest& request, const RuleFacts& facts,
                   RuleStep& result) {
  const std::string& type = result.precision;
  if (device_kind(request.device).has_own_memory) {
    const CudaRates rates = measure_cuda_rates();
    result.copy_bytes_per_second = rates.copy_bytes_per_second;
    const bool split = type_option(facts, "products") == "bf16x3";
    result.peak_tflops = type == "fp16"   ? rates.fp16_tflops
                         : type == "bf16" ? rates.bf16_tflops
                         : split          ? rates.bf16_tflops / 3
                                          : rates.fp32_tflops;
  } else {
    const MachineRates rates = measure_rates();
    result.copy_bytes_per_second = rates.copy_bytes_per_second;
    result.peak_tflops =
        (type == "bf16" ? rates.packed_gflops : rates.sgemm_gflops) / 1e3;
  }
  result.floor_seconds = result.flops / (result.peak_tflops * 1e12) +
                         result.bytes / result.copy_bytes_per_second;
}

double total_seconds(const std::vector<Engine::StageTime>& stages) {
  double total = 0;
  for (const Engine::StageTime& stage : stages) total += stage.seconds;
  return total;
}

// Uses one engine without replay, so that every call can be timed separately.
void measure_stages(Engine& engine, const RuleStepRequest& request,
                    Tensors& tensors, RuleStep& result) {
  Optimizer optimizer(
      make_rule(request.rule, request.options, DType::kFp32, request.device),
      tensors.all, {&engine}, {.repeats = false});
  const auto profiled_step = [&] {
    tensors.renew_grads();
    return engine.profile([&] { optimizer.step(kRate); });
  };
  optimizer.step(kRate);
  optimizer.step(kRate);
  engine.synchronize();
  result.stages = profiled_step();
  const int period = optimizer.rule().facts().period();
  for (int i = 1; i < period; ++i) {
    auto stages = profiled_step();
    if (total_seconds(stages) > total_seconds(result.refresh_stages))
      result.refresh_stages = std::move(stages);
  }
}

}  // namespace

RuleStep measure_rule_step(const RuleStepRequest& request,
                           const Progress& progress) {
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<Engine*> pointers;
  for (int i = 0; i < request.num_engines; ++i) {
    engines.push_back(make_engine(request.device));
    pointers.push_back(engines.back().get());
  }
  auto rule =
      make_rule(request.rule, request.options, DType::kFp32, request.device);
  const RuleFacts& facts = rule->facts();
  RuleStep result;
  result.memory_bytes = bytes_needed(request, facts);
  check_memory(result.memory_bytes, request);
  result.device = engines[0]->describe();
  result.precision = type_option(facts, "precision");
  count_work(request, facts, result);
  progress("measuring the device");
  measure_peaks(request, facts, result);
  progress("making tensors");
  Tensors tensors(*engines[0], request);
  {
    Optimizer optimizer(std::move(rule), tensors.all, pointers,
                        {.repeats = request.graph});
    measure_steps(optimizer, *engines[0], tensors, request, progress, result);
  }
  progress("looking at the stages");
  measure_stages(*engines[0], request, tensors, result);
  return result;
}

}  // namespace canzona::bench
