// `canzona bench decoder`: forward and backward of the decoder that is trained.
#include <fmt/format.h>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/measure/decoder_bench.h"
#include "canzona/report/document.h"
#include "canzona/train/model_source.h"
#include "cli/bench.h"
#include "cli/config.h"

namespace canzona::cli {
namespace {

constexpr const char* kBenchDecoderExamples =
    R"(Examples:
  canzona bench decoder --preset small
  canzona bench decoder --model qwen3-0.6b --set model.length=4096 --micro-batch 4 --device cuda

Forward and backward of one micro-batch with random weights, in turns with products: medians.
The share is that of the model's flops (6 for every weight that a token meets, and the causal
half of attention; recomputation is not counted) in what products alone reach: 1024-cubes in
fp32 on one core of a CPU, 8192-cubes in bf16 on a GPU. On a GPU also every stage, by the GPU's clock,
beside its floor: its flops at that rate, or the bytes that it must move at the rate of a copy.
)";

struct BenchDecoderFlags {
  ConfigArguments config;
  int rounds = 10;
  bool json = false;
};

Document view_of(const DecoderBench& bench, const TrainConfig& config) {
  const double seconds = bench.forward + bench.backward;
  const double rate = bench.flops / seconds;
  const auto tokens =
      static_cast<double>(config.batch.micro * config.model.length);
  Document out;
  out.line(cat(bench.engine), 0);
  out.line(fmt::format(
               "forward {:.2f} ms, backward {:.2f} ms (both {:.2f} to {:.2f}), "
               "{:.0f} tokens/s, {:.2f} TFLOP/s, {:.3f} of products' {:.2f}; "
               "memory {}",
               1e3 * bench.forward, 1e3 * bench.backward, 1e3 * bench.lowest,
               1e3 * bench.highest, tokens / seconds, 1e-12 * rate,
               rate / bench.product_rate, 1e-12 * bench.product_rate,
               human_bytes(bench.memory_bytes)),
           0);
  Listing rows;
  Members stages;
  for (const DecoderBench::Stage& stage : bench.stages) {
    rows.add({{"stage", "<stage", stage.name},
              {"calls", ">calls", stage.calls},
              {"ms", ">ms", stage.seconds * 1e3,
               fmt::format("{:.3f}", 1e3 * stage.seconds)},
              {"floor_ms", ">floor", stage.floor * 1e3,
               stage.floor > 0 ? fmt::format("{:.3f}", 1e3 * stage.floor) : "-"},
              {"share", ">floor / ms", stage.floor / stage.seconds,
               stage.floor > 0
                   ? fmt::format("{:.2f}", stage.floor / stage.seconds)
                   : "-"}});
  }
  if (!rows.empty()) out.table("stages", rows);
  out.set("engine", bench.engine)
      .set("forward_seconds", bench.forward)
      .set("backward_seconds", bench.backward)
      .set("tokens_per_second", tokens / seconds)
      .set("flops_per_second", rate)
      .set("product_flops_per_second", bench.product_rate);
  return out.set("copy_bytes_per_second", bench.copy_rate)
      .set("memory_bytes", bench.memory_bytes);
}

Outcome run(const BenchDecoderFlags& a, const Output& out) {
  const TrainConfig config = read_config(a.config);
  if (config.chooses_micro_batch())
    throw UsageError("batch.micro auto: expected a number for bench decoder");
  out.result(view_of(bench_decoder(decoder_of(config), model_name(config),
                                   config.device, a.rounds),
                     config),
             a.json);
  return Outcome::kDone;
}

OptionRows options_of(BenchDecoderFlags& a) {
  return joined({{option("--rounds", a.rounds, "COUNT", "rounds to time")
                      .between(1, 100'000),
                  json_flag(a.json)},
                 config_options(a.config)});
}

}  // namespace

Verb add_bench_decoder(CLI::App& bench) {
  return add_verb_of<BenchDecoderFlags>(
      bench, {.name = "decoder",
              .description = "time forward and backward of the decoder, and "
                             "its stages beside their floors",
              .footer = kBenchDecoderExamples});
}

}  // namespace canzona::cli
