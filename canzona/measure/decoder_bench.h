// Times forward and backward of the decoder on a device, and its stages beside
// what they could take at least.
//
//   DecoderBench bench = bench_decoder(config, "qwen3-0.6b", "cuda", 10);
//   bench.flops / (bench.forward + bench.backward) / bench.product_rate
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/model/decoder_config.h"

namespace canzona::measure {

struct DecoderBench {
  std::string engine;
  // Seconds of a micro-batch, medians; lowest and highest of both together.
  double forward = 0, backward = 0, lowest = 0, highest = 0;
  double flops = 0;         // of a micro-batch; recomputation is not counted
  double product_rate = 0;  // flop/s of products alone, in turns with them
  double copy_rate = 0;     // bytes read and written; 0: not measured
  int64_t memory_bytes = 0;
  struct Stage {
    std::string name;
    int64_t calls = 0;
    double seconds = 0;
    double floor = 0;  // flops at the products' rate, bytes at the copies'
  };
  std::vector<Stage> stages = {};  // longest first; none on a CPU
};

// Random weights and tokens. UsageError names what the device does not have.
DecoderBench bench_decoder(const DecoderConfig& config, const std::string& name,
                           const std::string& device, int rounds);

// Flops of a token, forward and backward: of its products with weights and of
// the causal half of attention.
double flops_per_token(const Model& shapes, const DecoderConfig& config);

}  // namespace canzona::measure
