#include "canzona/measure/decoder_bench.h"

#include <algorithm>
#include <memory>

#include "canzona/base/device_kind.h"
#include "canzona/base/random.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/device_memory.h"
#include "canzona/measure/step_times.h"
#include "canzona/model/decoder.h"
#include "canzona/sim/workload.h"

namespace canzona::measure {
namespace {

// Random numbers in place of what a runtime holds.
template <class Real>
class BenchWeights : public Weights<Real, float> {
 public:
  BenchWeights(const Model& shapes, Engine& engine) : memory_(engine) {
    for (const Tensor& tensor : shapes.tensors) {
      const Run numbers = memory_.noise(tensor.elements(), parameters_.size(),
                                        tensor.role == Role::kNorm ? 0 : 0.03);
      if constexpr (sizeof(Real) == sizeof(uint16_t)) {
        parameters_.push_back(memory_.rounded(tensor.elements()));
        engine.round_weights(parameters_.back(), elements<float>(numbers),
                             tensor.elements());
        gradients_.push_back(elements<float>(numbers));
      } else {
        parameters_.push_back(elements<float>(numbers));
        gradients_.push_back(elements<float>(memory_.zeros(tensor.elements())));
      }
    }
    engine.synchronize();
  }
  void wait(int32_t) override {}
  void release(int32_t) override {}
  void ready(int32_t, bool) override {}
  const Real* parameter(int32_t t) override { return parameters_[index(t)]; }
  float* gradient(int32_t t) override { return gradients_[index(t)]; }

 private:
  DeviceMemory memory_;
  std::vector<Real*> parameters_;
  std::vector<float*> gradients_;
};

// Either decoder with weights of its own.
class Benched {
 public:
  Benched(const DecoderConfig& config, const Model& shapes, Engine& engine) {
    if (device_kind(engine.kind()).has_own_memory) {
      device_ = std::make_unique<BenchWeights<uint16_t>>(shapes, engine);
      decoder_ = make_device_decoder(config, shapes, engine, *device_);
      return;
    }
    host_ = std::make_unique<BenchWeights<float>>(shapes, engine);
    const Parallel whole{.num_layers = config.architecture.layers};
    decoder_ =
        std::make_unique<Decoder<float>>(config, shapes, whole, engine, *host_);
  }
  TrainedDecoder<float>& operator*() { return *decoder_; }

 private:
  std::unique_ptr<BenchWeights<float>> host_;
  std::unique_ptr<BenchWeights<uint16_t>> device_;
  std::unique_ptr<TrainedDecoder<float>> decoder_;
};

std::vector<int32_t> random_tokens(const DecoderConfig& config) {
  std::vector<int32_t> tokens;
  const auto vocab = static_cast<uint64_t>(config.architecture.vocab);
  const int64_t count = config.micro_batch * (config.length + 1);
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(
        static_cast<int32_t>(bits_at(7, static_cast<uint64_t>(i)) % vocab));
  return tokens;
}

// Flop/s of a few products: in fp32, or in bf16 where the device has them.
class Squares {
 public:
  explicit Squares(Engine& engine)
      : engine_(engine),
        memory_(engine),
        rounded_(device_kind(engine.kind()).has_own_memory),
        side_(rounded_ ? 8192 : 1024),
        c_(square(memory_.zeros(side_ * side_))),
        a_(square(memory_.noise(side_ * side_, 1))) {
    if (!rounded_) return;
    uint16_t* bf16 = memory_.rounded(side_ * side_);
    engine.round_weights(bf16, elements<float>(Run{a_.data}), side_ * side_);
    a_.data = reinterpret_cast<std::byte*>(bf16);
    a_.dtype = DType::kBf16;
  }
  double flops_per_second() {
    constexpr int kProducts = 8;
    engine_.synchronize();
    const double begin = wall_seconds();
    for (int i = 0; i < kProducts; ++i)
      if (rounded_)
        engine_.bf16_product(c_, a_, Op::kNone, a_, Op::kTranspose);
      else
        engine_.product(c_, 1, a_, Op::kNone, a_, Op::kTranspose, 0);
    engine_.synchronize();
    const auto side = static_cast<double>(side_);
    return kProducts * 2 * side * side * side / (wall_seconds() - begin);
  }

 private:
  Matrices square(const Run& run) const {
    return matrices(elements<float>(run), side_, side_);
  }

  Engine& engine_;
  DeviceMemory memory_;
  bool rounded_;
  int64_t side_;
  Matrices c_, a_;
};

// The flops and bytes of one stage of a GPU's decoder in a micro-batch.
struct StageWork {
  const char* stage;
  double flops = 0;
  double bytes = 0;
};

std::vector<StageWork> works_of(const DecoderConfig& config,
                                const Model& shapes) {
  const Architecture& a = config.architecture;
  const auto tokens = static_cast<double>(config.tokens());
  const auto layers = static_cast<double>(a.layers);
  const auto hidden = static_cast<double>(a.hidden) * tokens;
  const auto ffn = static_cast<double>(a.ffn) * tokens * layers;
  const auto heads = static_cast<double>((a.heads + a.kv_heads) * a.head_dim) *
                     tokens * layers;
  const double norms = 2 * layers + 1;
  const double attention = layers * static_cast<double>(config.length) *
                           static_cast<double>(a.heads * a.head_dim) * tokens;
  const double products =
      flops_per_token(shapes, config) * tokens / 3 - 2 * attention;
  const double logits = static_cast<double>(a.vocab) * tokens;
  return {{"product forward", products},
          {"product dx", products},
          {"product dw", products},
          {"attention", 2 * attention},
          {"attention backward", 5 * attention},
          {"norm", 0, 8 * hidden * norms},
          {"norm backward", 0, 8 * hidden * norms},
          {"turn", 0, 4 * heads},
          {"turn back", 0, 6 * heads},
          {"swiglu", 0, 6 * ffn},
          {"swiglu backward", 0, 12 * ffn},
          {"loss", 0, 4 * logits},
          {"embedding", 0, 4 * hidden},
          {"embedding backward", 0, 10 * hidden}};
}

DecoderBench::Stage with_floor(const Engine::StageTime& time,
                               const std::vector<StageWork>& works,
                               const DecoderBench& rates) {
  DecoderBench::Stage stage{time.stage, time.calls, time.seconds};
  const std::string prefix = "decoder ";
  if (stage.name.starts_with(prefix)) stage.name.erase(0, prefix.size());
  const auto work = std::ranges::find(works, stage.name, &StageWork::stage);
  if (work == works.end()) return stage;
  stage.floor = work->flops / rates.product_rate;
  if (rates.copy_rate > 0) stage.floor += work->bytes / rates.copy_rate;
  return stage;
}

}  // namespace

double flops_per_token(const Model& shapes, const DecoderConfig& config) {
  double flops = 0;
  for (const PassSeconds& pass : compute_seconds(
           shapes,
           {.tokens = 1,
           .length = config.length,
           .width = config.architecture.heads * config.architecture.head_dim,
           .flops_per_second = 1,
           .experts_per_token = config.experts_per_token}))
    flops += pass.forward + pass.backward;
  return flops;
}

DecoderBench bench_decoder(const DecoderConfig& config, const std::string& name,
                           const std::string& device, int rounds) {
  const Model shapes = decoder_shapes(config, name);
  const auto engine = make_engine(device);
  Squares squares(*engine);
  Benched benched(config, shapes, *engine);
  TrainedDecoder<float>& decoder = *benched;
  const std::vector<int32_t> tokens = random_tokens(config);
  const Pass<float> pass{.sequences = tokens};
  double loss = 0;
  const auto forward = [&] { decoder.forward({&pass, 1}, {&loss, 1}); };
  const auto backward = [&] { decoder.backward({&pass, 1}, true); };
  const auto seconds = [&](const auto& work) {
    const double begin = wall_seconds();
    work();
    engine->synchronize();
    return wall_seconds() - begin;
  };
  DecoderBench out{.engine = engine->describe()};
  std::vector<double> there, back, both, rates;
  for (int i = 0; i < rounds + 1; ++i) {
    const double rate = squares.flops_per_second();
    const double f = seconds(forward), b = seconds(backward);
    decoder.finish_losses();
    if (i == 0) continue;  // warms up
    there.push_back(f);
    back.push_back(b);
    both.push_back(f + b);
    rates.push_back(rate);
  }
  out.forward = median_of(there);
  out.backward = median_of(back);
  out.lowest = std::ranges::min(both);
  out.highest = std::ranges::max(both);
  out.product_rate = median_of(rates);
  out.flops =
      flops_per_token(shapes, config) * static_cast<double>(config.tokens());
  out.memory_bytes = decoder.reserved();
  const auto times = engine->profile([&] {
    forward();
    backward();
  });
  decoder.finish_losses();
  if (times.empty()) return out;
  out.copy_rate = measure_cuda_rates().copy_bytes_per_second;
  const std::vector<StageWork> works = works_of(config, shapes);
  for (const Engine::StageTime& time : times)
    out.stages.push_back(with_floor(time, works, out));
  return out;
}

}  // namespace canzona::measure
