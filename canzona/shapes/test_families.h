// Configurations that tests of families read and change.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "canzona/base/files.h"
#include "canzona/shapes/config.h"
#include "canzona/shapes/read_model.h"
#include "canzona/shapes/tensor.h"
#include "canzona/shapes/test_support.h"

namespace canzona::shapes::families_test {

using nlohmann::json;

inline constexpr const char* kConfigs = CANZONA_TEST_DATA "/configs/";

inline std::string config_path(const std::string& name) {
  return cat(kConfigs, name, ".json");
}

inline json config_of(const std::string& name) {
  return json::parse(read_file(config_path(name), 1 << 20, "configuration"));
}

inline Model read(const json& config, bool fused = false) {
  return model_from_config(config.dump(), "config.json", {.fused = fused});
}

inline json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

inline std::string message(const json& config) {
  return message_of([&] { read(config); });
}
// The smallest model of its kind.
inline json tiny(const char* model_type, const json& more = json::object()) {
  return with({{"model_type", model_type},
               {"hidden_size", 8},
               {"intermediate_size", 12},
               {"num_hidden_layers", 1},
               {"num_attention_heads", 4},
               {"num_key_value_heads", 2},
               {"head_dim", 3},
               {"vocab_size", 10}},
              more);
}

}  // namespace canzona::shapes::families_test
