// Tensors of a model: who updates them, and what the model is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/plan/plan.h"
#include "canzona/report/team_view.h"
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

// The audit says what will happen to every tensor, before anything does: its
// rule, what it is split into, where it is kept, who computes it, what it holds
// and costs. An optimizer that was configured and never ran would show here.
//
//   std::string text = audit_text(plan, ink);
//   write_audit(json.member("audit"), plan);

// A matrix, or a tensor that is updated element by element.
struct AuditRow {
  std::string name;
  std::string rule;
  std::string split;            // "q", "q.3", "whole", "elements"
  int32_t home = kEveryHome;    // of its buffer; kEveryHome: all of them
  std::vector<int32_t> owners;  // ranks of the world; none: all that keep it
  std::optional<TeamStory> team = {};  // that shares it
  std::string team_reason = {};        // why, or why not; empty: teams are off
  int64_t bytes = 0;                   // of its parameters, whole
  double seconds = 0;  // predicted, mean over a period; 0: not counted
};

// In the model's order.
std::vector<AuditRow> audit(const Plan& plan);

std::string audit_text(const Plan& plan, const Ink& ink);
// An array of objects.
void write_audit(JsonWriter& out, const Plan& plan);

// Shows what the rules tell of themselves: `canzona rules`.

// All rules in a few words, or one of them with options, presets and states;
// UsageError names the nearest rule there is.
std::string rules_text(const std::string& rule, const Ink& ink);
// One object; "" for all rules.
std::string rules_json(const std::string& rule);

}  // namespace canzona
