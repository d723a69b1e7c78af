#include "canzona/rules/shampoo/options.h"

#include <cmath>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

constexpr const char* kRule = "shampoo";

// What a step does; names are those of the public implementations.
std::vector<OptionFact> step_facts() {
  return with_step_size(
      "0.001", "0.1",
      {
          {"decay_form", "decoupled", "decoupled|corrected|peak_independent|l2",
           "how weights decay"},
          {"beta1", "0.9", "0.0..1.0",
           "decay of the filtered gradient; 0: none"},
          {"beta2", "0.99", "0.0..1.0", "decay of the factors; 1: plain sums"},
          {"beta3", "auto", "auto|0.0..1.0",
           "decay that the gradient is looked ahead with; auto: beta1"},
          {"bias_correction", "on", "on|off",
           "correct factors and filtered gradient for their start at zero"},
          {"grafting", "adam", "none|sgd|adagrad|rmsprop|adam",
           "whose step the update takes its length from"},
          {"grafting_beta2", "0.99", "0.0..1.0",
           "decay of grafting's second moment, rmsprop and adam"},
          {"grafting_epsilon", "1e-8", "0.0..inf",
           "added to the root of grafting's second moment"},
      });
}

std::vector<OptionFact> shampoo_factor_facts() {
  return {
      {"max_preconditioner_dim", "1024", "1..1000000",
       "a longer side is cut into blocks of this length"},
      {"merge", "2", "1|2|off", "merge small sizes until so many axes remain"},
      {"start_step", "auto", "auto|never|1..1000000000000",
       "first refresh; auto: the frequency"},
      {"exponent", "auto", "auto|0.0..1.0",
       "factors are taken to minus this; auto: 1/(2 axes), 0: no factors"},
  };
}

std::vector<OptionFact> root_facts() {
  return {
      {"root", "auto", "auto|eigen|newton|higher",
       "inverse roots by eigenvectors or coupled iteration; auto: newton on "
       "cuda, where products are cheap, eigen on cpu"},
      {"device", "cuda", "cuda|cpu",
       "that root=auto and products=auto are for"},
      {"root_iterations", "18", "1..1000",
       "most iterations of a coupled iteration"},
      {"root_tolerance", "1e-6", "0.0..1.0",
       "a coupled iteration ends at this distance"},
      {"root_order", "3", "2..10", "order of root=higher"},
      {"epsilon", "1e-12", "0.0..inf", "added to factors; not for root=higher"},
      {"root_abs_epsilon", "1e-12", "0.0..inf", "the same for root=higher"},
      {"root_rel_epsilon", "1e-5", "0.0..1.0",
       "added to factors times their norm if that is more"},
      {"perturb", "before", "before|after",
       "root=eigen: add before or after the decomposition"},
  };
}

std::vector<OptionFact> make_shampoo_option_facts() {
  std::vector<OptionFact> facts = refresh_option_facts("10");
  for (auto make : {step_facts, shampoo_factor_facts, root_facts, product_option_facts})
    for (OptionFact& fact : make()) facts.push_back(std::move(fact));
  return facts;
}

template <class Choice>
Choice choice_option(
    const RuleOptions& options, const char* name,
    std::initializer_list<std::pair<const char*, Choice>> choices) {
  const std::string& word = word_option(options, name);
  for (const auto& [text, choice] : choices)
    if (word == text) return choice;
  throw InternalError(cat(name, "=", word));
}

// What is best on the device, where that is asked for.
RuleOptions for_device(RuleOptions options) {
  std::string& root = options.at("root");
  if (root == "auto")
    root = options.at("device") == "cuda" ? "newton" : "eigen";
  choose_products(options);
  return options;
}

// The fraction with the smallest terms within rounding of x, 0 < x <= 1, by
// its continued fraction.
std::optional<InversePower> as_fraction(double x) {
  constexpr double kMostTerms = 1000;
  double num = 1, den = 0, num_before = 0, den_before = 1;
  for (double rest = x; den <= kMostTerms;) {
    const double whole = std::floor(rest);
    num_before = std::exchange(num, whole * num + num_before);
    den_before = std::exchange(den, whole * den + den_before);
    if (std::abs(num / den - x) <= 1e-12 * x && den <= kMostTerms)
      return InversePower{static_cast<int64_t>(den), static_cast<int64_t>(num)};
    rest = 1 / (rest - whole);
  }
  return std::nullopt;
}

std::optional<InversePower> read_exponent(const RuleOptions& options) {
  const std::string& text = word_option(options, "exponent");
  if (text == "auto") return std::nullopt;
  const double value = real_option(options, "exponent");
  if (value == 0) return InversePower{1, 0};
  const auto fraction = as_fraction(value);
  if (!fraction)
    throw UsageError(cat("rule ", kRule, ": exponent=", text,
                         " is no fraction with terms up to 1000"));
  if (word_option(options, "root") == "newton" && fraction->q != 1)
    throw UsageError(cat("rule ", kRule, ": root=newton gives exponents 1/p, ",
                         "exponent=", text, " is ", fraction->q, "/",
                         fraction->p, "; root=higher or eigen can"));
  return fraction;
}

std::optional<int64_t> read_start(const RuleOptions& options, int period) {
  const std::string& text = word_option(options, "start_step");
  if (text == "never") return std::nullopt;
  if (text == "auto") return period;
  const int64_t start = integer_option(options, "start_step");
  if (start < period)
    throw UsageError(cat("rule ", kRule, ": start_step=", start,
                         " is less than precondition_frequency=", period));
  return start;
}

RootOptions read_root(const RuleOptions& options) {
  RootOptions root;
  root.method = choice_option<RootMethod>(options, "root",
                                          {{"eigen", RootMethod::kEigen},
                                           {"newton", RootMethod::kNewton},
                                           {"higher", RootMethod::kHigher}});
  root.epsilon = real_option(options, "epsilon");
  root.rel_epsilon = real_option(options, "root_rel_epsilon");
  root.abs_epsilon = real_option(options, "root_abs_epsilon");
  root.perturb_before = word_option(options, "perturb") == "before";
  root.max_iterations = integer_option(options, "root_iterations");
  root.tolerance = real_option(options, "root_tolerance");
  root.order = static_cast<int>(integer_option(options, "root_order"));
  return root;
}

BlockingOptions read_blocking(const RuleOptions& options) {
  const bool off = word_option(options, "merge") == "off";
  return {integer_option(options, "max_preconditioner_dim"),
          off ? 0 : static_cast<int>(integer_option(options, "merge"))};
}

// A decay of 1 would keep the zeros that it starts from.
double read_decay(const RuleOptions& options, const char* name) {
  const double decay = real_option(options, name);
  if (decay == 1)
    throw UsageError(cat("rule ", kRule, ": ", name,
                         "=1 keeps nothing of any "
                         "gradient"));
  return decay;
}

double read_beta3(const RuleOptions& options) {
  const bool alike = word_option(options, "beta3") == "auto";
  return read_decay(options, alike ? "beta1" : "beta3");
}

}  // namespace

const std::vector<OptionFact>& shampoo_option_facts() {
  static const std::vector<OptionFact> facts = make_shampoo_option_facts();
  return facts;
}

const std::vector<Preset>& shampoo_presets() {
  static const std::vector<Preset> presets = {
      {"canzona", "two-sided, grafted from Adam, damped relatively", {}},
      {"meta",
       "defaults of Meta's Distributed Shampoo",
       {{"learning_rate", "0.01"},
        {"weight_decay", "0"},
        {"beta2", "1"},
        {"grafting", "none"},
        {"grafting_beta2", "0.999"},
        {"grafting_epsilon", "1e-10"},
        {"precondition_frequency", "1"},
        {"merge", "1"},
        {"root", "eigen"},
        {"root_iterations", "100"},
        {"root_abs_epsilon", "0"},
        {"root_rel_epsilon", "0"}}}};
  return presets;
}

ShampooOptions::ShampooOptions(const RuleOptions& given)
    : in_force(for_device(options_in_force(kRule, shampoo_option_facts(),
                                           shampoo_presets(), given))),
      refresh(read_refresh(kRule, in_force)),
      start_step(read_start(in_force, refresh.period)),
      blocking(read_blocking(in_force)),
      root(read_root(in_force)),
      exponent(read_exponent(in_force)),
      learning_rate(real_option(in_force, "learning_rate")),
      weight_decay(real_option(in_force, "weight_decay")),
      decay_form(word_option(in_force, "decay_form")),
      beta1(read_decay(in_force, "beta1")),
      beta2(real_option(in_force, "beta2")),
      beta3(read_beta3(in_force)),
      bias_correction(switch_option(in_force, "bias_correction")),
      grafting(choice_option<Grafting>(in_force, "grafting",
                                       {{"none", Grafting::kNone},
                                        {"sgd", Grafting::kSgd},
                                        {"adagrad", Grafting::kAdagrad},
                                        {"rmsprop", Grafting::kRmsprop},
                                        {"adam", Grafting::kAdam}})),
      grafting_beta2(real_option(in_force, "grafting_beta2")),
      grafting_epsilon(real_option(in_force, "grafting_epsilon")),
      splits_products(canzona::splits_products(in_force)) {}

InversePower ShampooOptions::power(int order) const {
  return exponent.value_or(InversePower{2 * order, 1});
}

bool ShampooOptions::preconditions() const {
  return start_step.has_value() && !(exponent && exponent->q == 0);
}

}  // namespace canzona
