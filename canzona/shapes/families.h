// The families of models whose HF config.json is understood, by model_type.
//
// Adding a family is one line of the table in families.cc and a function that
// reads its keys into an Architecture. A feature that Architecture does not
// have yet (another norm, another layout) is a new field there, with its
// tensors in generate.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "canzona/shapes/architecture.h"
#include "canzona/shapes/config.h"
#include "canzona/shapes/records.h"

namespace canzona {

struct Family {
  std::string model_type;
  // Called when all required keys are present; UsageError names an odd value.
  Architecture (*read)(const ConfigMembers& members) = nullptr;
  // In the form that ConfigMembers::missing takes.
  std::vector<std::string> required = {};
  // The order of rows of a qkv_proj in weights beside such a configuration.
  QkvRows qkv_rows = QkvRows::kByGroup;
};

const std::vector<Family>& families();

// Returns nullptr if the type is not known.
const Family* find_family(std::string_view model_type);

// The model_types of all families.
std::vector<std::string> config_families();

}  // namespace canzona
