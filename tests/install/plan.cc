// Plans a model with the installed library, as a user's program would.
#include <iostream>

#include "canzona/plan/make_plan.h"
#include "canzona/plan/validate/validate.h"
#include "canzona/shapes/read_model.h"

int main() {
  using namespace canzona;
  Model model = read_model("qwen3-0.6b", {.fused = true});
  route(model, {});
  const auto rule = make_rule_facts("muon", {});
  const Plan plan = make_plan({.model = model,
                               .mesh = parse_mesh("dp=4,tp=2"),
                               .rule = *rule,
                               .options = {}});
  if (plan.matrices.size() != 112 || !validate(plan).empty()) {
    std::cerr << "the plan of " << plan.matrices.size() << " matrices fails\n";
    return 1;
  }
  std::cout << "planned " << plan.matrices.size() << " matrices, digest "
            << plan.digest << '\n';
}
