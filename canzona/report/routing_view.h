// Which tensors go to the matrix rule and which to AdamW, grouped by pattern of
// names, so that the 64 layers of a model are one line.
//
//   std::vector<TensorGroup> groups = group_tensors(plan.model, plan.matrices);
//   std::string text = routing_text(groups, "muon", ink);
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/report/terminal_style.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

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

}  // namespace canzona
