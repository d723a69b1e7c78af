// Fixtures made in memory, for tests.
//
//   TestFixture f = adamw_fixture();
//   f.metadata["mode"] = "neither";
//   Fixture read = f.read();
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "tests/conformance/fixture.h"

namespace canzona::tests {

struct TestTensor {
  std::string dtype;
  std::vector<int64_t> dims;
  std::string data;
};

template <class Value>
TestTensor test_tensor(const std::string& dtype, std::vector<int64_t> dims,
                       const std::vector<Value>& values) {
  std::string data(values.size() * sizeof(Value), '\0');
  std::memcpy(data.data(), values.data(), data.size());
  return {dtype, std::move(dims), data};
}
inline TestTensor f64(std::vector<int64_t> dims,
                      const std::vector<double>& values) {
  return test_tensor("F64", std::move(dims), values);
}

struct TestFixture {
  std::map<std::string, std::string> metadata;
  std::map<std::string, TestTensor> tensors;

  std::string header() const {
    JsonWriter out;
    out.begin_object().member("__metadata__").begin_object();
    for (const auto& [key, value] : metadata) out.field(key, value);
    out.end_object();
    size_t offset = 0;
    for (const auto& [name, tensor] : tensors) {
      const size_t end = offset + tensor.data.size();
      out.member(name).begin_object().field("dtype", tensor.dtype);
      out.member("shape").values(tensor.dims).member("data_offsets");
      out.values(std::vector<size_t>{offset, end}).end_object();
      offset = end;
    }
    out.end_object();
    return out.take();
  }

  std::string bytes() const { return bytes_with(header()); }

  std::string bytes_with(const std::string& header_text) const {
    std::string out;
    for (int i = 0; i < 8; ++i)
      out += static_cast<char>(header_text.size() >> (8 * i) & 0xFF);
    out += header_text;
    for (const auto& [name, tensor] : tensors) out += tensor.data;
    return out;
  }

  Fixture read() const { return read_fixture(bytes(), "x.safetensors"); }

  // Returns the message of the UsageError that reading gives.
  std::string message() const {
    try {
      read();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
};

// One step of AdamW on two weights, worked out by hand: with zero moments the
// first step moves each weight by lr·sign(g), up to epsilon.
inline TestFixture adamw_fixture() {
  TestFixture f;
  f.metadata = {
      {"rule", "adamw"},
      {"preset", "torch"},
      {"reference", "by hand"},
      {"dtype", "f64"},
      {"mode", "free"},
      {"steps", "1"},
      {"note", ""},
      {"tolerance", R"({"param": 1e-12, "exp_avg": 1e-14,
                        "exp_avg_sq": 1e-14})"},
      {"options", R"({"lr": 0.5, "weight_decay": 0.25, "adam.beta1": 0.5,
        "adam.beta2": 0.75, "adam.eps": 0.0, "adam.eps_mode": "corrected",
        "adam.amsgrad": false, "adam.fused": false, "ema_form": "lerp",
        "decay_form": "decoupled", "decay_order": "before"})"}};
  f.tensors = {{"param.0", f64({2}, {8, -4})},
               {"grad.1", f64({2}, {2, 4})},
               {"param.1", f64({2}, {6.5, -4})},
               {"exp_avg.1", f64({2}, {1, 2})},
               {"exp_avg_sq.1", f64({2}, {1, 4})}};
  return f;
}

}  // namespace canzona::tests
