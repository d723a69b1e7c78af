#include "canzona/rules/muon/links.h"

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/rules/options.h"

namespace canzona::rules {
namespace {

MuonLinks::Moment moment_of(const std::string& word) {
  if (word == "normuon") return MuonLinks::Moment::kNorMuon;
  if (word == "adamuon") return MuonLinks::Moment::kAdaMuon;
  return word == "namo" ? MuonLinks::Moment::kNamo : MuonLinks::Moment::kNone;
}

[[noreturn]] void exclude(const std::string& a, const std::string& b,
                          const std::string& why) {
  throw UsageError(cat("rule muon: ", a, " excludes ", b, ": ", why));
}

}  // namespace

MuonLinks::MuonLinks(const RuleOptions& options)
    : equilibrate(options.at("equilibrate") == "rows"),
      equilibrate_eps(real_option(options, "equilibrate_eps")),
      renorm(switch_option(options, "renorm")),
      renorm_eps(real_option(options, "renorm_eps")),
      moment(moment_of(options.at("second_moment"))),
      beta2(real_option(options, "beta2")),
      long_axis(options.at("second_moment_axis") == "long"),
      moment_eps(real_option(options, "second_moment_eps")),
      clamp(moment == Moment::kNorMuon &&
            options.at("second_moment_eps_mode") == "clamp"),
      norm_eps(real_option(options, "second_moment_norm_eps")),
      hyperball(options.at("constraint") == "hyperball"),
      constraint_eps(real_option(options, "constraint_eps")),
      radius(options.at("constraint_radius") == "current"
                 ? 0
                 : real_option(options, "constraint_radius")) {}

int64_t MuonLinks::num_moments(MatrixShape shape) const {
  switch (moment) {
    case Moment::kNorMuon:
      return moments_of_rows(shape) ? shape.rows : shape.cols;
    case Moment::kAdaMuon:
      return shape.rows * shape.cols;
    case Moment::kNamo:
      return 1;
    case Moment::kNone:
      break;
  }
  return 0;
}

std::vector<StateFact> MuonLinks::states(MatrixShape shape) const {
  const int64_t m = shape.rows, n = shape.cols;
  const auto at_owner = [](std::vector<int64_t> dims) {
    return std::vector<StateFact>{
        {"second_moment", std::move(dims), "fp32", Lives::kWithOwner}};
  };
  switch (moment) {
    case Moment::kNorMuon:
      return moments_of_rows(shape) ? at_owner({m, 1}) : at_owner({1, n});
    case Moment::kAdaMuon:
      return at_owner({m, n});
    case Moment::kNamo:
      return at_owner({1});
    case Moment::kNone:
      break;
  }
  return {};
}

// A norm takes two flops per element, a factor one. AdaMuon squares, averages,
// takes the root and divides; the hyperball moves the weights, takes their norm
// before and after, scales and subtracts.
Flops MuonLinks::flops(MatrixShape shape) const {
  int64_t each = equilibrate ? 3 : 0;
  if (renorm || moment == Moment::kNorMuon || moment == Moment::kNamo ||
      hyperball)
    each += 3;
  if (moment == Moment::kAdaMuon) each += 6;
  if (moment == Moment::kNamo) each += 4;
  if (hyperball) each += 8;
  return Flops(each) * shape.rows * shape.cols;
}

// MuonEq reads the blend once more. Any link after Newton-Schulz has the result
// written, read for sums and read again where it is applied. AdaMuon reads and
// writes its moments and writes the result anew; NAMO writes and reads the
// gradient and does not blend while loading; the hyperball reads the weights
// for two norms.
int64_t MuonLinks::bytes_per_element() const {
  int64_t passes = equilibrate ? 1 : 0;
  if (any_after()) passes += 3;
  if (moment == Moment::kAdaMuon || moment == Moment::kNamo) passes += 3;
  if (hyperball) passes += 2;
  return passes * kBytesPerFp32;
}

void require_muon_links(const RuleOptions& options) {
  const MuonLinks links(options);
  const std::string& decay = options.at("decay_form");
  if (links.needs_gradient() && decay == "l2")
    exclude("second_moment=namo", "decay_form=l2",
            "its second moment is that of the raw gradient; use decoupled, "
            "independent or palm");
  if (options.at("decay_lr") == "scaled" && decay != "decoupled" &&
      decay != "palm")
    exclude("decay_lr=scaled", cat("decay_form=", decay),
            "that form has no learning rate");
  if (links.hyperball && options.at("constraint_radius") != "current" &&
      links.radius == 0)
    throw UsageError(
        "rule muon: constraint_radius=0 leaves no weights; expected current or "
        "a number above 0");
  if (links.moment == MuonLinks::Moment::kAdaMuon && links.moment_eps == 0)
    throw UsageError(
        "rule muon: second_moment_eps=0 with second_moment=adamuon divides "
        "zeros by zeros; expected a number above 0");
  if (links.any() && options.at("strips") != "auto" &&
      options.at("strips") != "1")
    exclude(cat("strips=", options.at("strips")),
            "equilibrate, renorm, second_moment and constraint",
            "these depend on the length of the whole matrix; use strips=auto");
}

std::vector<OptionFact> muon_link_options() {
  return {
      {"decay_lr", "base", "base|scaled",
       "weights decay by the learning rate, or by it times the scale of the "
       "update"},
      {"equilibrate", "off", "off|rows",
       "MuonEq: before Newton-Schulz all rows get the same norm"},
      {"equilibrate_eps", "1e-06", "0.0..1.0", "least norm of a row"},
      {"renorm", "off", "off|on",
       "Muon+: after Newton-Schulz the norm becomes sqrt(min(m,n))"},
      {"renorm_eps", "1e-06", "0.0..1.0", "least norm before"},
      {"second_moment", "none", "none|normuon|adamuon|namo",
       "what the orthogonal factor is divided by: roots of averages of squares "
       "per row or column, per element, or of the gradient's norm"},
      {"beta2", "0.95", "0.0..<1.0", "decay rate of the second moment"},
      {"second_moment_axis", "long", "rows|long",
       "normuon: an average per row, or per index of the longer side"},
      {"second_moment_eps", "1e-08", "0.0..1.0",
       "keeps the divisor away from zero"},
      {"second_moment_eps_mode", "add", "add|clamp",
       "normuon: the divisor is sqrt(V) + eps, or sqrt(max(V, eps))"},
      {"second_moment_norm_eps", "auto", "auto|0.0..1.0",
       "normuon: least norm before the update's norm is restored; auto: "
       "second_moment_eps"},
      {"constraint", "none", "none|hyperball",
       "hyperball (MuonH): weights keep their norm, and the learning rate is "
       "the step's length relative to it"},
      {"constraint_eps", "1e-15", "0.0..1.0", "smaller norms count as zero"},
      {"constraint_radius", "current", "current|0.0..inf",
       "hyperball: the norm before each step, or this number"},
  };
}

}  // namespace canzona::rules
