// One rank alone, through the C interface: steps of a plan, and what they made.
//
//   alone request.json RATE STEPS > values
//
// Weights begin as numbers that follow from a tensor's name and an element's
// place, and so do gradients (python/tests/layouts.py says how). Every value is
// written as a line of JSON, which tells its name and bytes, and its bytes.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "canzona/c/canzona.h"

namespace {

using Json = nlohmann::json;

[[noreturn]] void fail(const std::string& what) {
  std::cerr << what << ": " << canzona_error() << "\n";
  std::exit(1);
}

uint64_t mixed(uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

uint64_t hash_of(const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

// Returns numbers between -2 and 2 with 24 bits.
std::vector<float> numbers(const std::string& name, uint64_t step, size_t n) {
  std::vector<float> values(n);
  const uint64_t seed = mixed(hash_of(name) + step);
  for (size_t i = 0; i < n; ++i)
    values[i] = static_cast<float>(mixed(seed + i) >> 40) * 0x1p-22f - 2;
  return values;
}

uint16_t to_bf16(float value) {  // to nearest, ties to even
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
float from_bf16(uint16_t value) {
  const uint32_t bits = uint32_t{value} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(bits));
  return result;
}

// The values of a tensor, in its dtype.
struct Values {
  bool wide = true;
  std::vector<float> fp32 = {};
  std::vector<uint16_t> bf16 = {};

  void set(std::vector<float> values) {
    fp32 = std::move(values);
    if (wide) return;
    bf16.clear();
    for (const float x : fp32) bf16.push_back(to_bf16(x));
  }
  void* data() { return wide ? static_cast<void*>(fp32.data()) : bf16.data(); }
  size_t bytes() const { return wide ? 4 * fp32.size() : 2 * bf16.size(); }
};

void put(Json about, const void* data, size_t bytes) {
  about["bytes"] = bytes;
  std::cout << about.dump() << "\n";
  std::cout.write(static_cast<const char*>(data),
                  static_cast<std::streamsize>(bytes));
}

size_t elements(const Json& shape) {
  size_t product = 1;
  for (const auto& side : shape) product *= side.get<size_t>();
  return product;
}

class Rank {
 public:
  explicit Rank(const std::string& request)
      : plan_(canzona_plan_new(request.data(),
                               static_cast<int64_t>(request.size()))),
        step_(canzona_step_new(plan_, 0, "cpu", nullptr, 1, nullptr)) {
    if (step_ == nullptr) fail("canzona_step_new");
    layout_ = Json::parse(canzona_step_layout(step_));
    for (const Json& tensor : layout_["tensors"]) {
      const bool wide = tensor["dtype"] == "fp32";
      const auto n = tensor["stored"].get<size_t>();
      std::vector<float> first = numbers(tensor["name"], 0, n);
      for (float& x : first) x *= 0.1f;
      weights_.push_back({.wide = wide});
      weights_.back().set(std::move(first));
      gradients_.push_back({.wide = wide});
      masters_.emplace_back();
      for (const uint16_t x : weights_.back().bf16)
        masters_.back().push_back(from_bf16(x));
    }
    for (const Json& n : layout_["memories"])
      memories_.emplace_back(n.get<size_t>());
    for_each_state([&](const Json&, const Json& state, float* at) {
      if (state["initially"] == "identity")
        for (size_t i = 0; i < state["shape"][0].get<size_t>(); ++i)
          at[i * (state["shape"][1].get<size_t>() + 1)] = 1;
    });
    slots_.resize(layout_["slot_elements"].get<size_t>() + 1);
    bind();
  }
  ~Rank() {
    canzona_step_free(step_);
    canzona_plan_free(plan_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void take(uint64_t number, double rate) {
    std::vector<canzona_gradient> given;
    for (size_t t = 0; t < gradients_.size(); ++t) {
      const Json& tensor = layout_["tensors"][t];
      Values& its = gradients_[t];
      its.set(numbers(tensor["name"], number, tensor["stored"]));
      given.push_back({its.data(), its.wide ? CANZONA_FP32 : CANZONA_BF16});
    }
    const std::vector<int64_t> steps(given.size(),
                                     static_cast<int64_t>(number));
    const std::vector<double> rates(layout_["num_groups"], rate);
    if (canzona_step_begin(step_, given.data(), steps.data(), rates.data()) !=
        0)
      fail("canzona_step_begin");
    for (size_t a = 0; a < layout_["actions"].size(); ++a)
      if (canzona_step_run(step_, static_cast<int32_t>(a)) != 0)
        fail("canzona_step_run");
    if (canzona_step_end(step_) != 0) fail("canzona_step_end");
  }

  void write() {
    for (size_t t = 0; t < weights_.size(); ++t) {
      const Json& name = layout_["tensors"][t]["name"];
      put({{"tensor", name}, {"what", ""}}, weights_[t].data(),
          weights_[t].bytes());
      if (!weights_[t].wide)
        put({{"tensor", name}, {"what", "master"}}, masters_[t].data(),
            4 * masters_[t].size());
    }
    for_each_state([&](const Json& tensor, const Json& state, const float* at) {
      Json about = {{"tensor", tensor["name"]}, {"what", state["name"]}};
      if (state.contains("number"))
        about["matrix"] = {state["number"], state["first_row"]};
      put(about, at, 4 * elements(state["shape"]));
    });
  }

 private:
  template <class Work>
  void for_each_state(const Work& work) {
    for (const Json& tensor : layout_["tensors"])
      for (const char* kind : {"states", "owned"})
        for (const Json& state : tensor[kind])
          work(tensor, state,
               memories_[state["memory"].get<size_t>()].data() +
                   state["at"].get<size_t>());
  }

  void bind() {
    std::vector<void*> weights, masters;
    std::vector<float*> states;
    for (Values& values : weights_) weights.push_back(values.data());
    for (auto& values : masters_) masters.push_back(values.data());
    for (auto& values : memories_) states.push_back(values.data());
    const canzona_memory memory = {weights.data(), masters.data(),
                                   states.data(),  slots_.data(),
                                   nullptr,        numbers_};
    if (canzona_step_bind(step_, &memory) != 0) fail("canzona_step_bind");
  }

  canzona_plan* plan_;
  canzona_step* step_;
  Json layout_;
  std::vector<Values> weights_, gradients_;
  std::vector<std::vector<float>> masters_, memories_;
  std::vector<float> slots_;
  int64_t numbers_[CANZONA_NUMBERS] = {};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: alone request.json RATE STEPS > values\n";
    return 2;
  }
  std::ifstream file(argv[1]);
  Rank rank(std::string(std::istreambuf_iterator<char>(file), {}));
  for (int step = 1; step <= std::atoi(argv[3]); ++step)
    rank.take(static_cast<uint64_t>(step), std::atof(argv[2]));
  rank.write();
  return std::cout.flush() ? 0 : 1;
}
