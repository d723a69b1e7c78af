#include "canzona/rules/soap/facts.h"

#include "canzona/rules/counting.h"

namespace canzona {
namespace {

constexpr const char* kMaxDim = "max_preconditioner_dim";

std::vector<OptionFact> make_option_facts() {
  std::vector<OptionFact> facts = refresh_option_facts("10");
  facts.push_back({kMaxDim, "10000", "1..1000000",
                   "a longer side gets no factor and is not rotated"});
  return facts;
}

const std::vector<OptionFact>& option_facts() {
  static const std::vector<OptionFact> facts = make_option_facts();
  return facts;
}

// What the factor of the side of length d costs on every step: rotating the
// gradient (2d²e) and the update back (2d²e), one triangle of the statistics
// (d²e). The first moment stays in the basis, so it is not rotated here.
Flops side_flops(int64_t d, int64_t e) { return 5 * cubic(d, d, e); }

// A·Q (2d³), QR with Q formed (4/3 d³ each), eigenvalue estimates (2d³): 20/3
// d³ in all, rounded to the nearest flop.
Flops refresh_flops(int64_t d) {
  const Flops thirds = 20 * cubic(d, d, d) + Flops(1);
  return Flops(thirds.value() / 3);
}

StateFact at_owner(const char* name, int64_t rows, int64_t cols) {
  return {name, {rows, cols}, "fp32", Lives::kWithOwner};
}

}  // namespace

SoapFacts::SoapFacts(const RuleOptions& given)
    : options_(options_in_force("soap", option_facts(), given)),
      refresh_(read_refresh("soap", options_)),
      max_dim_(integer_option(options_, kMaxDim)) {}

bool SoapFacts::has_left_factor(MatrixShape shape) const {
  return !is_empty(shape) && shape.rows <= max_dim_;
}

bool SoapFacts::has_right_factor(MatrixShape shape) const {
  return !is_empty(shape) && shape.cols <= max_dim_;
}

std::vector<StateFact> SoapFacts::states(MatrixShape shape) const {
  return states_for("soap", shape, [&] {
    const auto [m, n] = shape;
    std::vector<StateFact> states = {at_owner("exp_avg", m, n),
                                     at_owner("exp_avg_sq", m, n)};
    if (has_left_factor(shape)) {
      states.push_back(at_owner("L", m, m));
      states.push_back(at_owner("Q_L", m, m));
    }
    if (has_right_factor(shape)) {
      states.push_back(at_owner("R", n, n));
      states.push_back(at_owner("Q_R", n, n));
    }
    return states;
  });
}

Work SoapFacts::work(MatrixShape shape) const {
  return count_for("soap", shape, [&] {
    Work work;
    if (has_left_factor(shape)) {
      work.every_step += side_flops(shape.rows, shape.cols);
      work.refresh += refresh_flops(shape.rows);
    }
    if (has_right_factor(shape)) {
      work.every_step += side_flops(shape.cols, shape.rows);
      work.refresh += refresh_flops(shape.cols);
    }
    return work;
  });
}

std::string SoapFacts::algorithm(MatrixShape shape) const {
  const bool rotates = has_left_factor(shape) || has_right_factor(shape);
  return rotates ? "qr" : "adam";
}

RuleEntry soap_entry() {
  return {"soap", "Adam in the eigenbasis of the row and column statistics",
          option_facts(), make_facts<SoapFacts>};
}

}  // namespace canzona
