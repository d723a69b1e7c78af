#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/shapes/read_model.h"

namespace canzona {
namespace {

void apply(const RouteOverride& override, Model& model) {
  bool matched = false;
  for (Tensor& tensor : model.tensors) {
    if (!matches_pattern(tensor.name, override.pattern)) continue;
    if (override.matrix_rule && tensor.shape.size() < 2) {
      throw UsageError(cat("pattern ", quoted(override.pattern),
                           " routes tensor ", quoted(tensor.name),
                           " to the matrix rule, but it has one dimension"));
    }
    tensor.matrix_rule = override.matrix_rule;
    matched = true;
  }
  if (!matched) {
    throw UsageError(cat("pattern ", quoted(override.pattern),
                         " matches no tensor of model ", quoted(model.name)));
  }
}

}  // namespace

void route(Model& model, const std::vector<RouteOverride>& overrides) {
  for (Tensor& tensor : model.tensors) {
    tensor.matrix_rule = tensor.role == Role::kMatrix &&
                         tensor.shape.size() >= 2 && !tensor.flattened;
  }
  for (const RouteOverride& override : overrides) apply(override, model);
}

void freeze(Model& model, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool matched = false;
    for (Tensor& tensor : model.tensors) {
      if (!matches_pattern(tensor.name, pattern)) continue;
      tensor.frozen = true;
      tensor.matrix_rule = false;
      matched = true;
    }
    if (!matched)
      throw UsageError(cat("pattern ", quoted(pattern),
                           " freezes no tensor of model ", quoted(model.name)));
  }
}

}  // namespace canzona
