// Views of models: which rule updates which tensors, and what a model holds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/report/document.h"
#include "canzona/report/team_view.h"
#include "canzona/shapes/tensor.h"

namespace canzona::report {

// Shows which tensors go to the matrix rule and which to AdamW, grouped by name
// pattern, so that the 64 layers of a model take one line.
//
//   std::vector<TensorGroup> groups = group_tensors(plan.model, plan.matrices);
//   add_routing(out, "routing", groups, "muon");

// Tensors that differ only in the numbers in their names.
struct TensorGroup {
  std::string pattern;  // "layers.*.mlp.experts.*.up"
  std::vector<int64_t> shape;
  Role role = Role::kMatrix;
  Cut cut = Cut::kNone;
  bool matrix_rule = false;
  int64_t num_tensors = 0;
  int64_t num_matrices = 0;
  double elements = 0;  // of the whole group
};

// Replaces every part of the name that is a number by '*'; parts are separated
// by '.', '/' or ':'.
std::string name_pattern(std::string_view name);

// Returns the groups of the matrix rule, then AdamW's, each in model order.
std::vector<TensorGroup> group_tensors(const Model& model,
                                       std::span<const Matrix> matrices);

// "model.layers.*.mixer.mystery.weight": the patterns of tensors that are
// matrices without a known place (is_unplaced()).
std::vector<std::string> unplaced_tensors(const Model& model);

// Adds a table, in JSON the member `key`, and the totals of both rules.
Document& add_routing(Document& out, const char* key,
                      const std::vector<TensorGroup>& groups,
                      std::string_view rule);

// Models: a list of them, or what is in one.

// One model in a list.
struct ModelLine {
  std::string name;
  std::string description;
  double elements = 0;
  int64_t num_tensors = 0;
  int64_t num_matrices = 0;  // for the matrix rule, without splits
};
ModelLine summarize(const Model& model, const std::string& description);

// `families`: the supported values of model_type in a config.json.
Document presets_view(const std::vector<ModelLine>& lines,
                      const std::vector<std::string>& families);
Document model_view(const Model& model, const Splits& splits);

// The audit lists what will happen to every tensor before anything runs: its
// rule, how it is split, where it is stored, which ranks compute it, its size
// and its cost. An optimizer that was configured but never runs shows up here.

// A matrix, or a tensor that is updated element by element.
struct AuditRow {
  std::string name;
  std::string rule;
  std::string split;            // "q", "q.3", "whole", "elements"
  int32_t home = kEveryHome;    // in its buffer; kEveryHome: all homes
  std::vector<int32_t> owners;  // world ranks; empty: every rank that stores it
  std::optional<TeamStory> team = {};  // the team that shares it
  std::string team_reason = {};        // why, or why not; empty: teams are off
  int64_t bytes = 0;                   // of the whole parameter
  double seconds = 0;  // predicted mean over a period; 0: not counted
};

// Rows are in the model's order.
std::vector<AuditRow> audit(const Plan& plan);

Listing audit_listing(const Plan& plan, const std::vector<AuditRow>& rows);
Document audit_view(const Plan& plan);

// Shows what the rules say about themselves: all rules briefly, in JSON with
// everything, or one rule with options, presets and states. For an unknown
// rule, UsageError names the nearest one. A preset shows that rule's options
// and states with its values.
Document rules_view(const std::string& rule, const std::string& preset = "");

}  // namespace canzona::report
