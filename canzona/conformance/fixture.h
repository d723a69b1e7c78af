// A fixture: the inputs and outputs of a reference implementation of a rule,
// step by step, in one safetensors file.
//
//   Fixture fixture = read_fixture_file("muon-keller-3x3-f64.safetensors");
//   const FixtureTensor& before = fixture.tensor("param.0");
//
// Names are [inject.][bB.]WHAT.T: WHAT is param, grad, momentum, …; T counts
// steps from 1 (param.0 is the start); bB is a block of a tensor that is cut;
// inject marks what replaces the rule's own decomposition. Pure functions have
// in.K and out_DTYPE[.rR].K instead.
//
// Files are untrusted: sizes, names and numbers are checked, and memory stays
// within a few times the file's size. UsageError names the file and what is
// wrong with it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_reader.h"

namespace canzona {

inline constexpr int64_t kMaxFixtureBytes = 64 << 20;
inline constexpr int64_t kMaxFixtureTensors = 100'000;
inline constexpr int64_t kMaxFixtureSteps = 10'000;

struct FixtureTensor {
  std::vector<int64_t> dims;
  std::vector<double> values;     // fp32 widened
  std::vector<int64_t> integers;  // of a permutation; values are then empty
};

// A tensor's name, parsed.
struct TensorName {
  bool inject = false;
  int64_t block = -1;  // -1: the tensor is not cut
  std::string what;    // "factor_left"
  int64_t step = 0;    // or the number of a pure function's input
};
// Returns nothing if the name is not of that form.
std::optional<TensorName> parse_tensor_name(std::string_view name);
std::string to_string(const TensorName& name);

struct Fixture {
  std::string file;
  std::string rule;  // a name of the rules' table; or pure: ns, root
  std::string preset;
  std::string dtype;  // f64, f32, bf16_ns; any text for pure functions
  bool injected = false;
  int64_t steps = 0;
  Json options;
  std::map<std::string, std::optional<double>> tolerance;  // nothing: skip
  std::map<std::string, FixtureTensor> tensors;

  bool is_pure() const { return rule == "ns" || rule == "root"; }
  // Throws UsageError if it is missing; find() returns null instead.
  const FixtureTensor& tensor(const std::string& name) const;
  const FixtureTensor* find(const std::string& name) const;
  [[noreturn]] void refuse(const std::string& problem) const;
};

Fixture read_fixture(std::string_view bytes, const std::string& file);
Fixture read_fixture_file(const std::string& path);

}  // namespace canzona
