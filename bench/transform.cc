// How long does Newton–Schulz take in each form and precision, how accurate is
// it, and how far from its floor?
//
//   build/bench/transform --shape 1024x3072
//   build-cuda/bench/transform --shape 2048x6144 --batch 16 --device cuda
//
//   --algorithm standard|symmetric|gram, --precision fp32|bf16|fp16: only it
//   --threads N                threads that matrices are distributed over
//   --rounds N                 rounds, of which the fastest counts (10)
//   --rule-option NAME=VALUE   an option of the rule; repeatable
//
// Times are for the whole batch: CPU time with one thread, wall-clock time with
// several. The error is that of the first matrix against the same schedule in
// fp64. The floor is the time the flops take at the best rate measured here for
// such products, or the time to read the input and write the result, whichever
// is longer.
#include <cstdio>

#include "bench/arguments.h"
#include "bench/rule_step.h"
#include "bench/table.h"
#include "canzona/base/device_kind.h"

namespace canzona::bench {
namespace {

MatrixShape parse_shape(const std::string& text) {
  constexpr int64_t kLongest = int64_t{1} << 24;
  const std::vector<std::string> sides = split_text(text, 'x');
  if (sides.size() != 2)
    throw UsageError(cat("--shape ", quoted(text),
                         ": expected ROWSxCOLS, such as 2048x6144"));
  return {parse_integer(sides[0], 1, kLongest, "--shape"),
          parse_integer(sides[1], 1, kLongest, "--shape")};
}

// One of the words, or all of them.
std::vector<std::string> choose(const std::string& wanted,
                                const std::vector<std::string>& words) {
  if (wanted == "all") return words;
  if (std::ranges::find(words, wanted) == words.end())
    throw UsageError(cat(quoted(wanted), ": expected ", join(words, ", "),
                         " or all"));
  return {wanted};
}

// A machine has slow phases, but no fast ones.
MachineRates best_of(const MachineRates& a, const MachineRates& b) {
  return {std::max(a.sgemm_gflops, b.sgemm_gflops),
          std::max(a.packed_gflops, b.packed_gflops),
          std::max(a.copy_bytes_per_second, b.copy_bytes_per_second)};
}

TransformRequest request_of(Arguments& words) {
  TransformRequest request;
  request.shape = parse_shape(words.value("--shape", "1024x3072"));
  request.batch = words.count("--batch", 1);
  request.device = words.value("--device", "cpu");
  request.algorithms = choose(words.value("--algorithm", "all"),
                              {"standard", "symmetric", "gram"});
  std::vector<std::string> precisions = {"fp32", "bf16"};
  if (device_kind(request.device).has_fp16) precisions.emplace_back("fp16");
  request.precisions = choose(words.value("--precision", "all"), precisions);
  request.num_threads = words.count("--threads", 1);
  request.rounds = words.count("--rounds", 10);
  request.options = words.rule_options();
  return request;
}

void run(int argc, char** argv) {
  Arguments words(argc, argv);
  const bool json = words.has("--json");
  const TransformRequest request = request_of(words);
  words.require_no_more();
  const auto measured = device_kind(request.device).has_own_memory
                            ? measure_gpu_rates
                            : measure_rates;
  const MachineRates before = measured();
  const std::vector<TransformRow> rows =
      measure_transform(request, [](const std::string&) {});
  const MachineRates rates = best_of(before, measured());
  Table table(cat(request.batch, " x ", to_string(request.shape), " on ",
                  request.device),
              {"form", "ms", "floor ms", "of floor", "error x 1e6"});
  for (const TransformRow& row : rows) {
    const double floor = transform_floor(request, row, rates);
    table.add(cat(row.algorithm, " ", row.precision),
              {row.seconds * 1e3, floor * 1e3, row.seconds / floor,
               row.error_vs_fp64 * 1e6});
  }
  table.print(json);
}

}  // namespace
}  // namespace canzona::bench

int main(int argc, char** argv) {
  return canzona::bench::run_or_tell([&] { canzona::bench::run(argc, argv); });
}
