// How fixtures are checked.
#pragma once

#include <string>

namespace canzona {

struct CheckOptions {
  // Muon's form: auto, standard, symmetric, gram.
  std::string newton_schulz = "auto";
  // Tolerances for fp32 and bf16 hold for the machine, the library and the
  // rounding points of the reference; elsewhere they are widened so far.
  double slack = 4;
};

}  // namespace canzona
