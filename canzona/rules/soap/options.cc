// SOAP's options: declarations, presets, and their values as numbers and words.

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/facts.h"
#include "canzona/rules/options.h"
#include "canzona/rules/soap/facts.h"

namespace canzona::rules {
namespace {

constexpr const char* kOnOff = "on|off";

void append(std::vector<OptionFact>& to, const std::vector<OptionFact>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::vector<OptionFact> update_facts() {
  return with_step_size(
      "0.003", "0.01",
      {
          {"decay_form", "decoupled", "decoupled|independent|palm|l2",
           "a weight loses lr*wd, wd or lr^2*wd of itself per step; l2: wd*p "
           "is added to the gradient"},
          {"decay_order", "after", "before|after",
           "decay before or after the update"},
          {"l2_in_factors", "on", kOnOff,
           "factors include the decay of decay_form=l2 too"},
          {"beta1", "0.95", "0.0..<1.0", "decay rate of the first moment"},
          {"beta2", "0.95", "0.0..1.0",
           "decay rate of the second moment; 1: plain sums"},
          {"beta3", "auto", "auto|0.0..<1.0",
           "decay rate of the first moment in the update; auto: beta1"},
          {"epsilon", "1e-08", "0.0..inf",
           "added to the root of second moments"},
          {"epsilon_mode", "uncorrected", "corrected|uncorrected",
           "epsilon is added after or before the bias correction"},
          {"bias_correction", "on", kOnOff, "correct the bias of both moments"},
          {"nesterov", "off", kOnOff, "use Nesterov momentum"},
          {"momentum_basis", "eigen", "eigen|original",
           "space of the first moment; eigen saves products"},
          {"first_update", "skip", "skip|use",
           "the first step only finds a basis, or moves weights too"},
          {"normalize_grads", "off", kOnOff,
           "divide the update by its root mean square"},
          {"max_update_rms", "0", "0.0..inf",
           "the update's root mean square is at most this; 0: no bound"},
      });
}

std::vector<OptionFact> soap_factor_facts() {
  return {
      {"shampoo_beta", "auto", "auto|0.0..1.0",
       "decay rate of the factors; 1: plain sums; auto: beta2"},
      {"factor_bias_correction", "off", "off|weights|decomposition",
       "correct the factors' bias in the weights of the average, or in the "
       "copy that is decomposed"},
      {"kl", "off", kOnOff, "weight gradients by the other factor's inverse"},
      {"max_preconditioner_dim", "10000", "1..1000000",
       "a longer side is treated as long_sides says"},
      {"long_sides", "skip", "skip|cut",
       "a long side gets no factor, or is cut into blocks"},
      {"precondition_1d", "off", kOnOff, "vectors get a factor"},
      {"merge_dims", "off", kOnOff,
       "join adjacent dims up to max_preconditioner_dim"},
      {"ignored_dims", "none", "none|0..7,...",
       "dims, from 0, without a factor, as in 0 or 0,1; not for vectors"},
      {"strips", "1", "auto|1|2|4|8",
       "strips of the side without a factor, whose statistics are added by a "
       "binary tree, so that ranks can share a matrix with one factor"},
  };
}

std::vector<OptionFact> basis_facts() {
  return {
      {"start_step", "1", "1..1000000000", "step of the first basis"},
      {"first_basis", "eigh", "eigh|identity",
       "the first basis by eigh, or refreshed from the identity"},
      {"refresh", "auto", "auto|qr|cholesky_qr|eigh",
       "how to refresh a basis; auto: cholesky_qr on cuda, where products are "
       "cheap, qr on cpu"},
      {"device", "cuda", "cuda|cpu",
       "the device that refresh=auto and products=auto are chosen for"},
      {"power_steps", "1", "1..100", "products and QRs of one refresh"},
      {"qr_tolerance", "0", "0.0..1.0",
       "stop once the off-diagonal fraction is at most this"},
      {"sort", "before", "before|after|ascending",
       "sort columns before QR, second moment too; after; ascending"},
      {"eigen_reg", "0", "0.0..inf", "added to a factor's diagonal for eigh"},
      {"qr_regularised", "off", kOnOff, "eigen_reg is added for QR too"},
      {"basis_includes_gradient", "off", kOnOff,
       "refresh before the update, not after it"},
  };
}

std::vector<OptionFact> grafting_facts() {
  return {
      {"grafting", "none", "none|sgd|adagrad|rmsprop|adam",
       "rule that sets the update's length, and replaces it until start_step"},
      {"grafting_beta2", "0.999", "0.0..1.0",
       "decay rate of grafting's second moment"},
      {"grafting_epsilon", "1e-10", "0.0..inf",
       "added to the root of grafting's second moment"},
  };
}

std::vector<OptionFact> make_soap_option_facts() {
  std::vector<OptionFact> facts = update_facts();
  append(facts, soap_factor_facts());
  append(facts, refresh_option_facts("10"));
  append(facts, basis_facts());
  append(facts, grafting_facts());
  append(facts, product_option_facts());
  return facts;
}

RuleOptions nvidia_values() {
  return {{"decay_order", "before"},
          {"l2_in_factors", "off"},
          {"beta1", "0.9"},
          {"epsilon_mode", "corrected"},
          {"first_update", "use"},
          {"factor_bias_correction", "weights"},
          {"max_preconditioner_dim", "1000000"},
          {"precondition_frequency", "1"},
          {"sort", "after"},
          {"basis_includes_gradient", "on"}};
}

RuleOptions nvidia_kl_values() {
  RuleOptions values = nvidia_values();
  values["kl"] = "on";
  return values;
}

RuleOptions meta_values() {
  return {{"learning_rate", "0.01"},
          {"weight_decay", "0"},
          {"decay_order", "before"},
          {"beta1", "0.9"},
          {"beta2", "1"},
          {"epsilon", "1e-12"},
          {"epsilon_mode", "corrected"},
          {"momentum_basis", "original"},
          {"first_update", "use"},
          {"factor_bias_correction", "decomposition"},
          {"max_preconditioner_dim", "1024"},
          {"long_sides", "cut"},
          {"precondition_1d", "on"},
          {"precondition_frequency", "1"},
          {"first_basis", "identity"},
          {"sort", "ascending"},
          {"eigen_reg", "1e-12"},
          {"qr_regularised", "on"},
          {"basis_includes_gradient", "on"}};
}

std::vector<Preset> make_soap_presets() {
  return {
      {"canzona", "the original algorithm without needless rotations", {}},
      {"original", "nikhilvyas/SOAP", {{"eigen_reg", "1e-30"}}},
      {"nvidia", "NVIDIA-NeMo/Emerging-Optimizers", nvidia_values()},
      {"nvidia-kl", "the same with KL-Shampoo's factors", nvidia_kl_values()},
      {"meta", "facebookresearch/optimizers, eigenvalue-corrected Shampoo",
       meta_values()},
  };
}

[[noreturn]] void refuse_pair(std::string_view what, std::string_view why) {
  throw UsageError(cat("rule soap: ", what, ": ", why));
}

// Strips are updated one by one, from one field. Returns why these options
// forbid that; "" if they do not.
std::string why_no_strips(const RuleOptions& options) {
  if (word_option(options, "grafting") != "none" ||
      switch_option(options, "normalize_grads") ||
      real_option(options, "max_update_rms") > 0)
    return "grafting, normalize_grads and max_update_rms need the length of a "
           "whole update; expected strips=1 or strips=auto with them";
  if (word_option(options, "decay_form") == "l2" &&
      real_option(options, "weight_decay") != 0 &&
      !switch_option(options, "l2_in_factors"))
    return "decay_form=l2 with l2_in_factors=off gathers two fields; expected "
           "strips=1 or strips=auto with it";
  return "";
}

void require_consistent(const RuleOptions& options) {
  const bool own_beta3 = word_option(options, "beta3") != "auto";
  if (own_beta3 && switch_option(options, "nesterov"))
    refuse_pair("nesterov=on and beta3",
                "both blend in the gradient; choose one");
  if (own_beta3 && real_option(options, "beta1") == 0 &&
      real_option(options, "beta3") != 0)
    refuse_pair("beta3 without beta1",
                "with beta1=0 there is no first moment to blend");
  const bool grafts = word_option(options, "grafting") != "none";
  if (grafts && word_option(options, "momentum_basis") != "original")
    refuse_pair("grafting", "needs momentum_basis=original");
  if (grafts && switch_option(options, "normalize_grads"))
    refuse_pair("normalize_grads=on and grafting",
                "both set the length of the update; choose one");
  const std::string& strips = word_option(options, "strips");
  const std::string why = why_no_strips(options);
  if (strips != "1" && strips != "auto" && !why.empty())
    refuse_pair("strips=" + strips, why);
}

// Reads an option whose value "auto" stands for that of another option.
double real_or(const RuleOptions& options, const std::string& name,
               double other) {
  return word_option(options, name) == "auto" ? other
                                              : real_option(options, name);
}

// The enumerator whose index is that of the word in `words`.
template <class Enum>
Enum word_of(const RuleOptions& options, const std::string& name,
             std::initializer_list<std::string_view> words) {
  const std::string& word = word_option(options, name);
  int place = 0;
  for (std::string_view known : words) {
    if (known == word) return static_cast<Enum>(place);
    ++place;
  }
  throw InternalError(cat("option ", name, "=", word));
}

void read_update(SoapOptions& soap, const RuleOptions& options) {
  soap.beta1 = real_option(options, "beta1");
  soap.beta2 = real_option(options, "beta2");
  soap.beta3 = real_or(options, "beta3", soap.beta1);
  soap.epsilon = real_option(options, "epsilon");
  soap.corrected_epsilon = word_option(options, "epsilon_mode") == "corrected";
  soap.bias_correction = switch_option(options, "bias_correction");
  soap.nesterov = switch_option(options, "nesterov");
  soap.moment_in_basis = word_option(options, "momentum_basis") == "eigen";
  soap.skips_first_update = word_option(options, "first_update") == "skip";
  soap.l2 = word_option(options, "decay_form") == "l2" &&
            real_option(options, "weight_decay") != 0;
  soap.l2_in_factors = switch_option(options, "l2_in_factors");
  soap.grafting = word_of<SoapOptions::Grafting>(
      options, "grafting", {"none", "sgd", "adagrad", "rmsprop", "adam"});
  soap.grafting_beta2 = real_option(options, "grafting_beta2");
  soap.grafting_epsilon = real_option(options, "grafting_epsilon");
  soap.normalizes_update = switch_option(options, "normalize_grads");
  soap.max_update_rms = real_option(options, "max_update_rms");
}

void read_factors(SoapOptions& soap, const RuleOptions& options) {
  soap.shampoo_beta = real_or(options, "shampoo_beta", soap.beta2);
  soap.factor_bias = word_of<SoapOptions::FactorBias>(
      options, "factor_bias_correction", {"off", "weights", "decomposition"});
  soap.kl = switch_option(options, "kl");
  soap.max_dim = integer_option(options, "max_preconditioner_dim");
  soap.cuts_long_sides = word_option(options, "long_sides") == "cut";
  soap.precondition_1d = switch_option(options, "precondition_1d");
  soap.merges_dims = switch_option(options, "merge_dims");
  if (word_option(options, "ignored_dims") != "none")
    for (double axis : reals_option(options, "ignored_dims"))
      soap.ignored_axes.set(static_cast<size_t>(axis));
  if (word_option(options, "strips") != "auto")
    soap.strips = static_cast<int>(integer_option(options, "strips"));
  else
    soap.strips = why_no_strips(options).empty() ? 0 : 1;
}

void read_bases(SoapOptions& soap, const RuleOptions& options) {
  const RefreshOptions refresh = read_refresh("soap", options);
  soap.period = refresh.period;
  soap.phases = refresh.phases;
  soap.start_step = integer_option(options, "start_step");
  soap.refresh = word_of<SoapOptions::Refresh>(options, "refresh",
                                               {"qr", "cholesky_qr", "eigh"});
  soap.first_by_eigh = word_option(options, "first_basis") == "eigh";
  soap.power_steps = integer_option(options, "power_steps");
  soap.qr_tolerance = real_option(options, "qr_tolerance");
  soap.sort = word_of<SoapOptions::Sort>(options, "sort",
                                         {"before", "after", "ascending"});
  soap.eigen_reg = real_option(options, "eigen_reg");
  soap.qr_regularised = switch_option(options, "qr_regularised");
  soap.splits_products = splits_products(options);
  soap.basis_includes_gradient =
      switch_option(options, "basis_includes_gradient");
}

}  // namespace

const std::vector<OptionFact>& soap_option_facts() {
  static const std::vector<OptionFact> facts = make_soap_option_facts();
  return facts;
}

const std::vector<Preset>& soap_presets() {
  static const std::vector<Preset> presets = make_soap_presets();
  return presets;
}

RuleOptions soap_options_in_force(const RuleOptions& given) {
  RuleOptions options =
      options_in_force("soap", soap_option_facts(), soap_presets(), given);
  require_consistent(options);
  std::string& refresh = options.at("refresh");
  if (refresh == "auto")
    refresh = device_kind(options.at("device")).multiplies_cheaply
                  ? "cholesky_qr"
                  : "qr";
  choose_products(options);
  return options;
}

bool SoapOptions::has_grafting_moment() const {
  return grafting != Grafting::kNone && grafting != Grafting::kSgd;
}

bool SoapOptions::is_refresh(int64_t step, int phase) const {
  if (step == start_step) return true;
  return step > start_step && (updates(step) + phase) % period == 0;
}

SoapOptions read_soap_options(const RuleOptions& in_force) {
  SoapOptions soap;
  read_update(soap, in_force);
  read_factors(soap, in_force);
  read_bases(soap, in_force);
  return soap;
}

}  // namespace canzona::rules
