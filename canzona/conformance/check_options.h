// How fixtures are checked.
#pragma once

#include <string>

namespace canzona {

struct CheckOptions {
  // Muon's form: auto, standard, symmetric, gram.
  std::string newton_schulz = "auto";
  // What the engine is: cpu or cuda.
  std::string device = "cpu";
  // Tolerances hold for the reference's machine, library and rounding points.
  // Those of fp32 results are widened so far, those of others so far; on a GPU
  // nothing but the formulas is the same.
  double slack = 4;
  double other_slack = 1;

  // Of results in "f64", "f32" or "bf16".
  double slack_of(const std::string& dtype) const {
    return dtype == "f32" ? slack : other_slack;
  }
};

}  // namespace canzona
