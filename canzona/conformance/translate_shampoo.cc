#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/conformance/translate_parts.h"
#include "canzona/rules/shampoo/blocks.h"
#include "canzona/rules/shampoo/cans.h"

namespace canzona {
namespace {

void translate_blocks(OptionReader& from, RuleOptions& to) {
  to["max_preconditioner_dim"] = from.count("shampoo.max_preconditioner_dim");
  if (from.is("shampoo.merge", "inf")) {
    to["merge"] = "off";
  } else if (from.is("shampoo.merge", 1) || from.is("shampoo.merge", 2)) {
    to["merge"] = from.count("shampoo.merge");
  } else {
    from.unsupported("shampoo.merge");
  }
}

// A tensor's axes after merging.
int merged_order(const Fixture& fixture, const RuleOptions& to) {
  const std::string& merge = to.at("merge");
  const BlockingOptions options{
      parse_integer(to.at("max_preconditioner_dim"), 1, 1'000'000,
                    "shampoo.max_preconditioner_dim"),
      merge == "off" ? 0 : (merge == "1" ? 1 : 2)};
  return merge_sizes(fixture.tensor("param.0").dims, options).order();
}

// Exponents of single axes; those that are not named keep the default.
std::string exponents_of_axes(OptionReader& from, const Json& axes, int order) {
  std::vector<std::string> texts;
  for (int axis = 0; axis < order; ++axis) {
    const auto own = axes.find(std::to_string(axis));
    const bool named = own != axes.end();
    if (named && !own->is_number()) from.unsupported("shampoo.exponent");
    texts.push_back(exact_text(named ? own->get<double>() : 1.0 / (2 * order)));
  }
  return join(texts, ",");
}

// "1/(2*order)", or exponents of single orders, or of their axes; those that
// are not named keep the default.
void translate_exponent(OptionReader& from, const Fixture& fixture,
                        RuleOptions& to) {
  const std::string key = "shampoo.exponent";
  const Json& exponent = from.value(key);
  to["exponent"] = "auto";
  if (from.is(key, "1/(2*order)")) return;
  if (!exponent.is_object()) from.unsupported(key);
  const int order = merged_order(fixture, to);
  const auto own = exponent.find(std::to_string(order));
  if (own == exponent.end()) return;
  if (own->is_object()) {
    to["exponent"] = exponents_of_axes(from, *own, order);
    return;
  }
  if (!own->is_number()) from.unsupported(key);
  to["exponent"] = exact_text(own->get<double>());
}

void translate_decay_of_shampoo(OptionReader& from, RuleOptions& to) {
  to["weight_decay"] = from.number("weight_decay");
  to["decay_form"] =
      from.word("decay_form", {{"decoupled", "decoupled"},
                               {"corrected", "corrected"},
                               {"independent", "peak_independent"},
                               {"l2", "l2"}});
}

void translate_grafting(OptionReader& from, RuleOptions& to) {
  to["grafting"] = from.word("shampoo.grafting", {{"none", "none"},
                                                  {"sgd", "sgd"},
                                                  {"adagrad", "adagrad"},
                                                  {"rmsprop", "rmsprop"},
                                                  {"adam", "adam"}});
  if (from.has("shampoo.grafting_beta2"))
    to["grafting_beta2"] = from.number("shampoo.grafting_beta2");
  if (from.has("shampoo.grafting_eps"))
    to["grafting_epsilon"] = from.number("shampoo.grafting_eps");
}

void translate_momentum(OptionReader& from, RuleOptions& to) {
  if (!from.has("shampoo.classic_momentum")) return;
  to["classic_momentum"] = from.number("shampoo.classic_momentum");
  to["classic_dampening"] = from.number("shampoo.classic_dampening");
  to["classic_nesterov"] = from.on_off("shampoo.classic_nesterov");
}

// Its polynomials and the least size that it divides by are fixed.
void require_usual_cans(OptionReader& from, RuleOptions& to) {
  Json pairs = Json::array();
  for (const CansStep& step : cans_steps())
    pairs.push_back(Json::array({step.b, step.a}));
  from.require("shampoo.cans_pairs", pairs);
  from.require("eps", kCansLeastSize);
  to["epsilon"] = "0";
}

}  // namespace

void translate_root(OptionReader& from, RuleOptions& to) {
  to["root"] = from.word("shampoo.root", {{"eigen", "eigen"},
                                          {"eigen_pseudo_inverse", "pseudo"},
                                          {"newton", "newton"},
                                          {"higher", "higher"},
                                          {"cans", "cans"}});
  to["perturb"] = "before";
  if (from.has("shampoo.perturb"))
    to["perturb"] = from.word("shampoo.perturb",
                              {{"before", "before"}, {"after", "after"}});
  to["epsilon"] = from.has("eps") ? from.number("eps") : "0";
  if (to["root"] == "cans") require_usual_cans(from, to);
  if (from.has("shampoo.rank_rtol"))
    to["rank_rtol"] = from.value("shampoo.rank_rtol").is_null()
                          ? "auto"
                          : from.count("shampoo.rank_rtol");
  if (from.has("shampoo.rank_atol"))
    to["rank_atol"] = from.count("shampoo.rank_atol");
  to["root_abs_epsilon"] = "0";
  to["root_rel_epsilon"] = "0";
  if (from.has("shampoo.root_abs_eps"))
    to["root_abs_epsilon"] = from.count("shampoo.root_abs_eps");
  if (from.has("shampoo.root_rel_eps"))
    to["root_rel_epsilon"] = from.count("shampoo.root_rel_eps");
  if (from.has("shampoo.root_order"))
    to["root_order"] = from.count("shampoo.root_order");
  if (from.has("shampoo.root_max_iterations"))
    to["root_iterations"] = from.count("shampoo.root_max_iterations");
  if (from.has("shampoo.root_tolerance"))
    to["root_tolerance"] = from.count("shampoo.root_tolerance");
}

void translate_shampoo(OptionReader& from, const Fixture& fixture,
                       RuleOptions& to) {
  translate_momentum(from, to);
  translate_decay_of_shampoo(from, to);
  translate_blocks(from, to);
  translate_exponent(from, fixture, to);
  translate_grafting(from, to);
  translate_root(from, to);
  to["beta1"] = from.number("shampoo.beta1");
  to["beta2"] = from.number("shampoo.beta2");
  to["beta3"] = from.number("shampoo.beta3");
  to["bias_correction"] = from.on_off("shampoo.bias_correction");
  to["drop_weighting"] = from.on_or_off("shampoo.drop_weighting_factor");
  to["trace_scaling"] = from.on_or_off("shampoo.trace_scaling");
  to["kl"] = from.on_or_off("shampoo.kl");
  to["precondition_frequency"] = from.count("shampoo.frequency");
  to["start_step"] = from.count("shampoo.start");
}

}  // namespace canzona
