// Tensors of a model: who updates them, and what the model is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/report/terminal.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

// Shows which tensors go to the matrix rule and which to AdamW, grouped by
// pattern of names, so that the 64 layers of a model are one line.
//
//   std::vector<TensorGroup> groups = group_tensors(plan.model, plan.matrices);
//   std::string text = routing_text(groups, "muon", ink);

// Tensors whose names differ in numbers only and that are alike otherwise.
struct TensorGroup {
  std::string pattern;  // "layers.*.mlp.experts.*.up"
  std::vector<int64_t> shape;
  Role role = Role::kMatrix;
  Cut cut = Cut::kNone;
  bool matrix_rule = false;
  int64_t num_tensors = 0;
  int64_t num_matrices = 0;
  double elements = 0;  // of all together
};

// The name with every part that is a number replaced by '*'; parts stand
// between '.', '/' or ':'.
std::string name_pattern(std::string_view name);

// Matrix-rule groups first, then AdamW's, each in model order.
std::vector<TensorGroup> group_tensors(const Model& model,
                                       std::span<const Matrix> matrices);

std::string routing_text(const std::vector<TensorGroup>& groups,
                         std::string_view rule, const Ink& ink);

// An array of objects, one per group.
void write_routing(JsonWriter& out, const std::vector<TensorGroup>& groups,
                   std::string_view rule);

// Models on the terminal and as JSON: a list of them, or what is in one.

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
