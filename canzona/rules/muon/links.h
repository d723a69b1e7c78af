// The optional links of Muon's chain (docs/rules.md), at the owner:
//
//   u  equilibrate  Newton-Schulz  renorm  second moment  constraint  update
//
//   const MuonLinks links(options_in_force);
//   if (links.any()) …                  // the owner needs the whole matrix
//
// A chain with any link gives its results from sums over the whole matrix.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/rules/facts.h"

namespace canzona::rules {

struct MuonLinks {
  enum class Moment { kNone, kNorMuon, kAdaMuon, kNamo };

  explicit MuonLinks(const RuleOptions& in_force);

  bool any() const { return equilibrate || any_after(); }
  // True if there are links after Newton-Schulz.
  bool any_after() const {
    return renorm || moment != Moment::kNone || hyperball;
  }
  // True if the owner needs the gradient beside the blend, or the weights.
  bool needs_gradient() const { return moment == Moment::kNamo; }
  bool needs_weights() const { return hyperball; }
  int fields() const { return 1 + needs_gradient() + needs_weights(); }

  // True if NorMuon keeps one number per row, false if one per column.
  bool moments_of_rows(MatrixShape shape) const {
    return !long_axis || shape.rows >= shape.cols;
  }
  // The numbers of the second moment of one matrix.
  int64_t num_moments(MatrixShape shape) const;
  // The states kept at the owner.
  std::vector<StateFact> states(MatrixShape shape) const;
  // Flops beyond those of the products and of plain Muon.
  Flops flops(MatrixShape shape) const;
  // Bytes that they read and write beyond plain Muon.
  int64_t bytes_per_element() const;

  bool equilibrate = false;
  double equilibrate_eps = 0;
  bool renorm = false;
  double renorm_eps = 0;
  Moment moment = Moment::kNone;
  double beta2 = 0;
  bool long_axis = false;
  double moment_eps = 0;
  bool clamp = false;
  double norm_eps = 0;
  bool hyperball = false;
  double constraint_eps = 0;
  double radius = 0;  // 0: the norm before the step
};

// Throws UsageError if links contradict each other or other options.
void require_muon_links(const RuleOptions& in_force);

// The options of the links.
std::vector<OptionFact> muon_link_options();

}  // namespace canzona::rules
