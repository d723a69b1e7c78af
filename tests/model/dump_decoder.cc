// dump_decoder list
// dump_decoder <case> <fp32|fp64> <folder>
//
// Runs a small decoder with weights by chance forward and backward, two
// micro-batches in flight, and leaves what another writing of the model needs
// to do the same: index.json (configuration, tensors, tokens, losses),
// parameters.bin and gradients.bin (tensors one behind the other, row-major).
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/linalg/engine.h"
#include "canzona/model/decoder.h"
#include "canzona/model/test_decoder.h"

namespace canzona::tests {
namespace {

constexpr int64_t kMicroBatches = 2;

DecoderConfig dense() {
  DecoderConfig config = small_decoder();
  config.architecture.hidden = 24;
  config.architecture.ffn = 40;
  config.architecture.vocab = 50;
  config.architecture.tied = false;
  config.length = 37;
  config.rope_base = 1000;
  return config;
}

DecoderConfig with_experts(int64_t shared) {
  DecoderConfig config = dense();
  config.architecture.layers = 3;
  config.architecture.experts = {
      .count = 6, .ffn = 10, .shared = shared, .first_layer = 1};
  return config;
}

DecoderConfig changed(DecoderConfig config,
                      const std::function<void(DecoderConfig&)>& change) {
  change(config);
  return config;
}

std::map<std::string, DecoderConfig> cases() {
  return {
      {"dense", dense()},
      {"tied", changed(dense(), [](auto& c) { c.architecture.tied = true; })},
      {"no_qk_norm",
       changed(dense(), [](auto& c) { c.architecture.qk_norm = false; })},
      {"recompute",
       changed(dense(), [](auto& c) { c.recompute = Recompute::kLayer; })},
      {"one_group",
       changed(dense(), [](auto& c) { c.architecture.kv_heads = 1; })},
      {"group_per_head",
       changed(dense(), [](auto& c) { c.architecture.kv_heads = 4; })},
      {"long", changed(dense(),
                       [](auto& c) {
                         c.length = 300;
                         c.micro_batch = 1;
                       })},
      {"experts", with_experts(0)},
      {"shared_experts", with_experts(2)},
      {"one_expert_each",
       changed(with_experts(0), [](auto& c) { c.experts_per_token = 1; })},
      {"all_experts",
       changed(with_experts(0), [](auto& c) { c.experts_per_token = 6; })},
      {"experts_recompute",
       changed(with_experts(1),
               [](auto& c) { c.recompute = Recompute::kLayer; })},
  };
}

struct Losses {
  std::vector<double> mean, balance;
};

void write_config(JsonWriter& out, const DecoderConfig& config) {
  const Architecture& a = config.architecture;
  out.member("config").begin_object();
  out.field("layers", a.layers).field("hidden", a.hidden).field("ffn", a.ffn);
  out.field("vocab", a.vocab).field("heads", a.heads);
  out.field("kv_heads", a.kv_heads).field("head_dim", a.head_dim);
  out.field("tied", a.tied).field("experts", a.experts.count);
  out.field("shared_experts", a.experts.shared);
  out.field("experts_per_token", config.experts_per_token);
  out.field("balance_coefficient", config.balance_coefficient);
  out.field("norm_epsilon", config.norm_epsilon);
  out.field("rope_base", config.rope_base);
  out.field("length", config.length).end_object();
}

std::string index_of(const DecoderTrial& trial, const std::string& dtype,
                     const std::vector<std::vector<int32_t>>& sequences,
                     const Losses& losses) {
  JsonWriter out(2);
  out.begin_object().field("dtype", dtype);
  write_config(out, trial.config);
  out.member("losses").values(losses.mean);
  out.member("balances").values(losses.balance);
  out.member("sequences").begin_array();
  for (const auto& tokens : sequences) out.values(tokens);
  out.end_array().member("tensors").begin_array();
  for (const Tensor& tensor : trial.shapes.tensors)
    out.begin_object()
        .field("name", tensor.name)
        .member("shape")
        .values(tensor.shape)
        .end_object();
  return out.end_array().end_object().take();
}

template <class Real>
void write_numbers(const std::string& path,
                   const std::vector<std::vector<Real>>& tensors) {
  std::string bytes;
  for (const auto& values : tensors)
    bytes.append(reinterpret_cast<const char*>(values.data()),
                 values.size() * sizeof(Real));
  write_file(path, bytes);
}

template <class Real>
void dump(const DecoderConfig& config, const std::string& dtype,
          const std::string& folder) {
  const DecoderTrial trial(config);
  std::vector<std::vector<int32_t>> sequences;
  for (int64_t m = 0; m < kMicroBatches; ++m)
    sequences.push_back(
        DecoderTrial(config, 1000 + static_cast<uint64_t>(m)).sequences);
  const Parallel whole = whole_model(config);
  const auto engine = make_cpu_engine();
  TrialWeights<Real> weights(trial, whole);
  Decoder<Real> decoder(config, trial.shapes, whole, *engine, weights,
                        kMicroBatches);
  Losses losses;
  for (int64_t m = 0; m < kMicroBatches; ++m) {
    const auto& tokens = sequences[static_cast<size_t>(m)];
    losses.mean.push_back(decoder.forward(m, tokens, nullptr, nullptr));
    losses.balance.push_back(decoder.balance_loss(m));
  }
  for (int64_t m = 0; m < kMicroBatches; ++m)
    decoder.backward(m, sequences[static_cast<size_t>(m)], nullptr, nullptr,
                     m + 1 == kMicroBatches);
  write_file(folder + "/index.json", index_of(trial, dtype, sequences, losses));
  write_numbers(folder + "/parameters.bin", weights.parameters);
  write_numbers(folder + "/gradients.bin", weights.gradients);
}

int run(const std::vector<std::string>& words) {
  const auto known = cases();
  if (words == std::vector<std::string>{"list"}) {
    for (const auto& [name, config] : known) std::cout << name << '\n';
    return 0;
  }
  if (words.size() != 3 || !known.contains(words[0]))
    throw UsageError("dump_decoder list | <case> <fp32|fp64> <folder>");
  const DecoderConfig& config = known.at(words[0]);
  if (words[1] == "fp64")
    dump<double>(config, words[1], words[2]);
  else if (words[1] == "fp32")
    dump<float>(config, words[1], words[2]);
  else
    throw UsageError(cat("fp32 or fp64, not ", quoted(words[1])));
  return 0;
}

}  // namespace
}  // namespace canzona::tests

int main(int argc, char** argv) {
  try {
    return canzona::tests::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
