#include "canzona/measure/transform.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/engine_memory.h"
#include "canzona/linalg/lanes.h"
#include "canzona/measure/clock.h"
#include "canzona/rules/muon/facts.h"
#include "canzona/rules/muon/newton_schulz.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

// Returns Gaussian numbers with one dominant direction, as in gradients.
std::vector<float> make_input(MatrixShape shape, int64_t batch) {
  const auto [m, n] = shape;
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
  const auto [m, n] = request.shape;
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
  const auto [m, n] = request.shape;
  const ConstMatrices in = as_matrices(input, m, n, request.batch);
  const Matrices out = as_matrices(candidate.out, m, n, request.batch);
  double seconds = 0;
  if (request.device == "cpu") {
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

void check(const TransformRequest& request) {
  const auto [m, n] = request.shape;
  if (m < 1 || n < 1 || request.batch < 1)
    throw UsageError(cat("a transform of ", request.batch, " matrices of ",
                         to_string(request.shape),
                         ": expected at least 1 everywhere"));
  const Bytes one = Bytes(kBytesPerFp32) * m * n * request.batch;
  const auto copies = static_cast<int64_t>(1 + request.algorithms.size() *
                                                   request.precisions.size());
  const int64_t memory = request.device == "cuda"
                             ? find_cuda_device(nullptr)->memory_bytes
                             : machine_info().memory_bytes;
  if ((one * copies).value() > memory / 2)
    throw UsageError(cat("a transform of ", request.batch, " matrices of ",
                         to_string(request.shape), " takes more than half of ",
                         "this machine's ", memory, " bytes"));
}

}  // namespace

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
  check(request);
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

}  // namespace canzona
