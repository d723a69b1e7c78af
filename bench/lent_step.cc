// Does a step on lent memory take longer than the rule itself? Both update the
// same matrices on one rank, taking turns:
//
//   $ build/bench/lent_step --shrink 4 --rounds 7
//   the 28 matrices of four Qwen3-0.6B layers, each side over 4, muon, 1 thread
//     wire                  optimizer ms   lent ms    ratio
//     fp32                          61.2      61.5    1.005
//     bf16                          61.2      63.0    1.029
//
//   --rule NAME --threads N --shrink N --rounds N --bf16 --json
//
// Medians, of CPU time with one thread, else by the wall; every gradient is
// looked at on both sides. With --bf16 weights and gradients of the lent step
// are bf16, the optimizer's are fp32.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "bench/table.h"
#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/linalg/engine.h"
#include "canzona/measure/clock.h"
#include "canzona/plan/placed/placed_plan.h"
#include "canzona/rules/optimizer.h"
#include "canzona/runtime/lent/lent_step.h"

namespace canzona::bench {
namespace {

struct LentBench {
  std::string rule = "muon";
  int threads = 1;
  int64_t shrink = 4;
  int64_t rounds = 7;
  bool bf16 = false;
  bool json = false;
};

LentBench read_arguments(int argc, char** argv) {
  LentBench bench;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] { return std::string(++i < argc ? argv[i] : ""); };
    if (name == "--rule")
      bench.rule = value();
    else if (name == "--threads")
      bench.threads =
          static_cast<int>(parse_integer(value(), 1, 1024, "--threads"));
    else if (name == "--shrink")
      bench.shrink = parse_integer(value(), 1, 64, "--shrink");
    else if (name == "--rounds")
      bench.rounds = parse_integer(value(), 1, 1000, "--rounds");
    else if (name == "--bf16")
      bench.bf16 = true;
    else if (name == "--json")
      bench.json = true;
    else
      throw UsageError(cat("unknown option ", quoted(name)));
  }
  return bench;
}

std::vector<Dims> qwen_layers(int64_t shrink) {
  std::vector<Dims> shapes;
  for (int layer = 0; layer < 4; ++layer)
    for (const Dims& dims : std::vector<Dims>{{2048, 1024},
                                              {1024, 1024},
                                              {1024, 1024},
                                              {1024, 2048},
                                              {3072, 1024},
                                              {3072, 1024},
                                              {1024, 3072}})
      shapes.push_back({dims[0] / shrink, dims[1] / shrink});
  return shapes;
}

PlacedPlan plan_of(const LentBench& bench, WireDtype wire) {
  PlacedRequest request;
  request.groups = {{bench.rule, with_device(bench.rule, {}, "cpu")}};
  request.options.wire = wire;
  for (const Dims& dims : qwen_layers(bench.shrink))
    request.tensors.push_back(
        {.name = cat("w", request.tensors.size()),
         .shape = dims,
         .dtype = bench.bf16 ? ParameterDtype::kBf16 : ParameterDtype::kFp32,
         .splits = {},
         .stored = {{{{0, 0}, dims}}}});
  return make_placed_plan(request);
}

std::vector<float> numbers(size_t seed, const Dims& dims) {
  std::vector<float> values(static_cast<size_t>(num_elements(dims)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = uniform_at(seed, i);
  return values;
}

// Everything a caller lends.
class Lender {
 public:
  Lender(const LentBench& bench, WireDtype wire)
      : plan_(plan_of(bench, wire)),
        lanes_(bench.threads, [] { return make_cpu_engine(); }),
        memory_(lanes_.lane(0)),
        step_(plan_, 0, lanes_) {
    LentMemory lent;
    for (size_t t = 0; t < plan_.tensors.size(); ++t) {
      const std::vector<float> values = numbers(t, plan_.tensors[t].shape);
      const auto count = std::ssize(values);
      const Run weights = memory_.put(values);
      lent.masters.push_back(nullptr);
      lent.weights.push_back(weights.data);
      Run gradient = memory_.put(values);
      if (bench.bf16) {
        lent.masters.back() = reinterpret_cast<float*>(weights.data);
        lent.weights.back() = narrow(values, count);
        gradient = {narrow(values, count), DType::kBf16};
      }
      gradients_.push_back({gradient.data, gradient.dtype});
    }
    for (const int64_t elements : step_.schedule().memories)
      lent.states.push_back(
          reinterpret_cast<float*>(memory_.zeros(elements).data));
    lent.slots = memory_.zeros(step_.schedule().slot_elements).data;
    lent.numbers = reinterpret_cast<int64_t*>(
        memory_.zeros(kLentNumbers, DType::kFp64).data);
    step_.bind(lent);
    steps_.assign(plan_.tensors.size(), 0);
  }

  void step() {
    for (int64_t& number : steps_) ++number;
    const double rates[] = {1e-3};
    step_.begin(gradients_, steps_, rates);
    step_.look();
    step_.judge(true);
    for (size_t a = 0; a < step_.schedule().actions.size(); ++a)
      step_.run(static_cast<int32_t>(a));
    step_.end();
  }

 private:
  std::byte* narrow(const std::vector<float>& values, int64_t count) {
    uint16_t* to = memory_.rounded(count);
    lanes_.lane(0).round_to_bf16(to, values.data(), count);
    return reinterpret_cast<std::byte*>(to);
  }

  PlacedPlan plan_;
  Lanes lanes_;
  EngineMemory memory_;
  LentStep step_;
  std::vector<LentGradient> gradients_;
  std::vector<int64_t> steps_;
};

struct Alone {
  explicit Alone(const LentBench& bench)
      : lanes(bench.threads, [] { return make_cpu_engine(); }),
        memory(lanes.lane(0)) {
    std::vector<Optimizer::Tensor> tensors;
    for (const Dims& dims : qwen_layers(bench.shrink)) {
      const std::vector<float> values = numbers(tensors.size(), dims);
      tensors.push_back({cat("w", tensors.size()), dims, memory.put(values),
                         memory.put(values)});
    }
    optimizer = std::make_unique<Optimizer>(
        make_rule(bench.rule, {}, DType::kFp32), std::move(tensors), lanes);
  }

  Lanes lanes;
  EngineMemory memory;
  std::unique_ptr<Optimizer> optimizer;
};

void run(const LentBench& bench) {
  Table table(
      cat("the 28 matrices of four Qwen3-0.6B layers, each side over ",
          bench.shrink, ", ", bench.rule, ", ", bench.threads, " thread(s)"),
      {"wire", "optimizer ms", "lent ms", "ratio"});
  for (const WireDtype wire : {WireDtype::kFp32, WireDtype::kBf16}) {
    Alone alone(bench);
    Lender lender(bench, wire);
    std::vector<double> left, right;
    for (int64_t round = -2; round < bench.rounds; ++round) {
      const double a =
          seconds_of(bench.threads, [&] { alone.optimizer->step(1e-3); });
      const double b = seconds_of(bench.threads, [&] { lender.step(); });
      if (round < 0) continue;
      left.push_back(a);
      right.push_back(b);
    }
    table.add(wire == WireDtype::kFp32 ? "fp32" : "bf16",
              {1e3 * median(left), 1e3 * median(right),
               median(right) / median(left)});
  }
  table.print(bench.json);
}

}  // namespace
}  // namespace canzona::bench

int main(int argc, char** argv) {
  return canzona::bench::run_or_tell(
      [&] { canzona::bench::run(canzona::bench::read_arguments(argc, argv)); });
}
