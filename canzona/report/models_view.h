// Models on the terminal and as JSON: a list of them, or what is in one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/report/terminal_style.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

// One model in a list.
struct ModelLine {
  std::string name;
  std::string description;
  double elements = 0;
  int64_t num_tensors = 0;
  int64_t num_matrices = 0;  // of the matrix rule, nothing split
};
ModelLine summarize(const Model& model, const std::string& description);

// `families`: the model_types whose config.json is understood.
std::string presets_text(const std::vector<ModelLine>& lines,
                         const std::vector<std::string>& families,
                         const Ink& ink);
std::string presets_json(const std::vector<ModelLine>& lines,
                         const std::vector<std::string>& families);

std::string model_text(const Model& model, const Splits& splits,
                       const Ink& ink);
std::string model_json(const Model& model, const Splits& splits);

}  // namespace canzona
