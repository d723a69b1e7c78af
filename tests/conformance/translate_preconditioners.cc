#include <algorithm>

#include "canzona/base/text.h"
#include "tests/conformance/translate.h"
#include "canzona/rules/shampoo/facts.h"

namespace canzona::tests {
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

// Returns the number of axes after merging.
int merged_order(const Fixture& fixture, const RuleOptions& to) {
  const std::string& merge = to.at("merge");
  const BlockingOptions options{
      parse_integer(to.at("max_preconditioner_dim"), 1, 1'000'000,
                    "shampoo.max_preconditioner_dim"),
      merge == "off" ? 0 : (merge == "1" ? 1 : 2)};
  return merge_sizes(fixture.tensor("param.0").dims, options).order();
}

// Returns the exponents of single axes; those not named keep the default.
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

// Translates "1/(2*order)", or exponents of single orders or of their axes;
// those not named keep the default.
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

// Requires the standard polynomials and the standard smallest divisor, which
// are fixed.
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

namespace {

void translate_update(OptionReader& from, RuleOptions& to) {
  translate_decay(from, to);
  // "direction" adds wd·p to the update, which is decay before it.
  to["decay_order"] = from.word(
      "soap.decay_order",
      {{"after", "after"}, {"before", "before"}, {"direction", "before"}});
  to["epsilon_mode"] =
      from.word("adam.eps_mode",
                {{"corrected", "corrected"}, {"uncorrected", "uncorrected"}});
  to["momentum_basis"] = from.word(
      "soap.momentum_basis", {{"eigen", "eigen"}, {"original", "original"}});
  to["first_update"] =
      from.word("soap.first_update", {{"skip", "skip"}, {"use", "use"}});
}

void translate_basis(OptionReader& from, RuleOptions& to) {
  to["precondition_frequency"] = from.count("soap.frequency");
  to["first_basis"] =
      from.word("soap.first", {{"eigh", "eigh"}, {"identity", "identity"}});
  to["refresh"] = from.word("soap.refresh", {{"qr", "qr"}, {"eigh", "eigh"}});
  to["sort"] =
      from.word("soap.sort", {{"before_qr_descending_permute_v", "before"},
                              {"after_descending", "after"},
                              {"ascending", "ascending"}});
  to["basis_includes_gradient"] =
      from.on_off("soap.basis_includes_current_grad");
}

// The original's and NVIDIA's: Adam in the eigenbasis.
void translate_adam_form(OptionReader& from, RuleOptions& to) {
  to["beta1"] = from.number("adam.beta1");
  to["beta2"] = from.number("adam.beta2");
  to["beta3"] = "auto";
  to["epsilon"] = from.number("adam.eps");
  to["bias_correction"] = from.on_off("adam.bias_correction");
  to["nesterov"] =
      from.has("adam.nesterov") ? from.on_off("adam.nesterov") : "off";
  to["shampoo_beta"] = from.number("soap.shampoo_beta");
  to["eigen_reg"] = from.number("soap.eigen_reg");
  to["qr_regularised"] = "off";
  to["start_step"] = "1";
  to["long_sides"] = "skip";
  to["grafting"] = "none";
  // Decay of form l2 is applied after the factors have seen the gradient.
  to["l2_in_factors"] = "off";
  to["factor_bias_correction"] =
      from.boolean("soap.factor_bias_correction") ? "weights" : "off";
}

void translate_original(OptionReader& from, RuleOptions& to) {
  translate_adam_form(from, to);
  to["normalize_grads"] = from.on_or_off("soap.normalize_grads");
  to["kl"] = "off";
  to["max_preconditioner_dim"] = from.count("soap.max_precond_dim");
  to["precondition_1d"] = from.on_off("soap.precondition_1d");
  to["merge_dims"] = from.on_off("soap.merge_dims");
  to["power_steps"] = "1";
}

void translate_nvidia(OptionReader& from, RuleOptions& to) {
  from.require("soap.max_precond_dim", nullptr);
  translate_adam_form(from, to);
  if (from.has("soap.max_update_rms"))
    to["max_update_rms"] = from.number("soap.max_update_rms");
  to["kl"] = from.on_off("soap.kl");
  to["max_preconditioner_dim"] = "1000000";
  to["precondition_1d"] = "off";
  to["merge_dims"] = "off";
  to["power_steps"] = from.count("soap.power_iter_steps");
}

// Refuses fixtures that merging small dims would change, since SOAP does not
// merge.
void require_unmerged(OptionReader& from, const Fixture& fixture) {
  if (from.is("soap.merge", "inf")) return;
  const std::vector<int64_t>& dims = fixture.tensor("param.0").dims;
  const bool unchanged =
      dims.size() <= 2 && std::find(dims.begin(), dims.end(), 1) == dims.end();
  if (!from.is("soap.merge", 2) || !unchanged) from.unsupported("soap.merge");
}

void translate_soap_grafting(OptionReader& from, RuleOptions& to) {
  to["grafting"] = from.word("soap.grafting", {{"none", "none"},
                                               {"sgd", "sgd"},
                                               {"adagrad", "adagrad"},
                                               {"rmsprop", "rmsprop"},
                                               {"adam", "adam"}});
  if (from.has("soap.grafting_beta2"))
    to["grafting_beta2"] = from.number("soap.grafting_beta2");
  if (from.has("soap.grafting_eps"))
    to["grafting_epsilon"] = from.number("soap.grafting_eps");
}

// Translates dims without a change of basis, by the number of dims.
void translate_ignored_dims(OptionReader& from, const Fixture& fixture,
                            RuleOptions& to) {
  const std::string key = "soap.ignored_basis_change_dims";
  if (!from.has(key)) return;
  const Json& by_order = from.value(key);
  if (!by_order.is_object()) from.unsupported(key);
  const size_t order = fixture.tensor("param.0").dims.size();
  const auto own = by_order.find(std::to_string(order));
  if (own == by_order.end() || (own->is_array() && own->empty())) return;
  if (!own->is_array() || order < 2) from.unsupported(key);
  std::vector<std::string> dims;
  for (const Json& dim : *own) {
    if (!dim.is_number_integer()) from.unsupported(key);
    dims.push_back(std::to_string(dim.get<int64_t>()));
  }
  to["ignored_dims"] = join(dims, ",");
}

// Meta's: eigenvalue-corrected Shampoo.
void translate_meta(OptionReader& from, const Fixture& fixture,
                    RuleOptions& to) {
  from.require("soap.drop_weighting_factor", false);
  translate_ignored_dims(from, fixture, to);
  from.require("soap.exponent", 0.5);
  require_unmerged(from, fixture);
  to["beta1"] = from.number("soap.beta1");
  to["beta2"] = from.number("soap.beta2");
  to["beta3"] = from.number("soap.beta3");
  to["epsilon"] = from.number("eps");
  to["bias_correction"] = from.on_off("soap.bias_correction");
  to["nesterov"] = "off";
  to["shampoo_beta"] = "auto";
  to["eigen_reg"] = from.number("eps");
  to["qr_regularised"] = "on";
  to["start_step"] = from.count("soap.start");
  to["max_preconditioner_dim"] = from.count("soap.max_preconditioner_dim");
  to["long_sides"] = "cut";
  to["precondition_1d"] = "on";
  to["merge_dims"] = "off";
  to["kl"] = "off";
  to["l2_in_factors"] = "on";
  const bool corrected = from.boolean("soap.factor_bias_correction") &&
                         from.boolean("soap.bias_correction");
  to["factor_bias_correction"] = corrected ? "decomposition" : "off";
  to["power_steps"] = from.count("soap.qr_iterations");
  to["qr_tolerance"] = from.count("soap.qr_tolerance");
  translate_soap_grafting(from, to);
}

}  // namespace

void translate_soap(OptionReader& from, const Fixture& fixture,
                    RuleOptions& to) {
  translate_update(from, to);
  translate_basis(from, to);
  const std::string variant =
      from.word("soap.variant",
                {{"original", "original"}, {"nv", "nv"}, {"meta", "meta"}});
  if (variant == "original") {
    translate_original(from, to);
  } else if (variant == "nv") {
    translate_nvidia(from, to);
  } else {
    translate_meta(from, fixture, to);
  }
}

}  // namespace canzona::tests
