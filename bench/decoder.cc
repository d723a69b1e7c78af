// This benchmark tells how much of a product's speed the decoder keeps: its
// model flops per second against those of a product of 1024³ in the same
// process, taken in turns.
//
//   decoder [hidden ffn layers heads kv_heads length micro_batch vocab rounds
//            recompute]
//
// Flops of a step are 6·(weights in products)·tokens, and for attention
// 6·layers·length·width·tokens, the causal half.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "canzona/base/random.h"
#include "canzona/model/decoder.h"

namespace canzona {
namespace {

class PlainWeights : public Weights<float> {
 public:
  explicit PlainWeights(const Model& shapes) {
    for (const Tensor& tensor : shapes.tensors) {
      const float start = tensor.role == Role::kNorm ? 1.0F : 0.0F;
      auto& values = parameters_.emplace_back();
      for (int64_t i = 0; i < tensor.elements(); ++i)
        values.push_back(start + 0.03F * uniform_at(parameters_.size(),
                                                    static_cast<uint64_t>(i)));
      gradients_.emplace_back(values.size());
    }
  }
  void wait(int32_t) override {}
  const float* parameter(int32_t tensor) override {
    return parameters_[static_cast<size_t>(tensor)].data();
  }
  float* gradient(int32_t tensor) override {
    return gradients_[static_cast<size_t>(tensor)].data();
  }
  void release(int32_t) override {}
  void ready(int32_t, bool) override {}

 private:
  std::vector<std::vector<float>> parameters_, gradients_;
};

double seconds(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double model_flops(const DecoderConfig& config, const Model& shapes) {
  const Architecture& a = config.architecture;
  double weights = 0;
  for (const Tensor& tensor : shapes.tensors) {
    const bool in_product = tensor.role == Role::kMatrix ||
                            tensor.role == Role::kHead ||
                            (tensor.role == Role::kEmbedding && a.tied);
    if (in_product) weights += static_cast<double>(tensor.elements());
  }
  const auto attention =
      static_cast<double>(a.layers * config.length * a.heads * a.head_dim);
  return 6 * (weights + attention) * static_cast<double>(config.tokens());
}

DecoderConfig read_config(const std::vector<int64_t>& n) {
  DecoderConfig config;
  config.architecture = {.layers = n[2],
                         .hidden = n[0],
                         .ffn = n[1],
                         .vocab = n[7],
                         .heads = n[3],
                         .kv_heads = n[4],
                         .head_dim = 64,
                         .tied = true,
                         .qk_norm = true};
  config.length = n[5];
  config.micro_batch = n[6];
  config.recompute = n[9] != 0;
  return config;
}

std::vector<int32_t> make_tokens(const DecoderConfig& config) {
  std::vector<int32_t> tokens;
  const auto vocab = static_cast<uint64_t>(config.architecture.vocab);
  const int64_t count = config.micro_batch * (config.length + 1);
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(
        static_cast<int32_t>(bits_at(7, static_cast<uint64_t>(i)) % vocab));
  return tokens;
}

struct Square {
  explicit Square(Engine& given) : engine(given) {}
  void multiply() {
    engine.product(matrices(c.data(), kSide, kSide), 1,
                   matrices(a.data(), kSide, kSide), Op::kNone,
                   matrices(b.data(), kSide, kSide), Op::kNone, 0);
  }
  static constexpr int64_t kSide = 1024;
  static constexpr double kFlops = 2.0 * kSide * kSide * kSide;
  Engine& engine;
  std::vector<float> a = std::vector<float>(kSide * kSide, 0.5F);
  std::vector<float> b = a, c = a;
};

void run(const DecoderConfig& config, int64_t rounds) {
  const Model shapes = decoder_shapes(config, "bench");
  const auto engine = make_cpu_engine();
  PlainWeights weights(shapes);
  const Parallel whole{.num_layers = config.architecture.layers};
  Decoder<float> decoder(config, shapes, whole, *engine, weights);
  const std::vector<int32_t> tokens = make_tokens(config);
  Square square(*engine);
  const double flops = model_flops(config, shapes);
  std::vector<double> forward, backward, products, shares;
  for (int64_t i = 0; i < rounds + 1; ++i) {
    const double product = seconds([&] {
      for (int k = 0; k < 8; ++k) square.multiply();
    });
    const double there =
        seconds([&] { decoder.forward(0, tokens, nullptr, nullptr); });
    const double back =
        seconds([&] { decoder.backward(0, tokens, nullptr, nullptr, true); });
    if (i == 0) continue;
    products.push_back(8 * Square::kFlops / product);
    forward.push_back(there);
    backward.push_back(back);
    shares.push_back(flops / (there + back) / products.back());
  }
  std::printf("%s\n", engine->describe().c_str());
  std::printf("product of 1024^3: %.1f GFLOP/s\n", median(products) * 1e-9);
  std::printf(
      "decoder: forward %.1f ms, backward %.1f ms, %.1f GFLOP/s, "
      "memory %.1f MB\n",
      median(forward) * 1e3, median(backward) * 1e3,
      flops / (median(forward) + median(backward)) * 1e-9,
      static_cast<double>(decoder.reserved()) * 1e-6);
  std::printf("share: %.3f (lowest %.3f, highest %.3f of %zu)\n",
              median(shares), *std::ranges::min_element(shares),
              *std::ranges::max_element(shares), shares.size());
}

}  // namespace
}  // namespace canzona

int main(int argc, char** argv) {
  std::vector<int64_t> numbers = {384, 1024, 6, 6, 2, 128, 8, 256, 15, 0};
  for (int i = 1; i < argc && i <= static_cast<int>(numbers.size()); ++i)
    numbers[static_cast<size_t>(i) - 1] = std::atoll(argv[i]);
  canzona::run(canzona::read_config(numbers), numbers[8]);
  return 0;
}
