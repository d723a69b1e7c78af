#include "canzona/rules/shampoo/facts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::rules {
namespace {

// Taken from NVIDIA's Emerging-Optimizers.
constexpr CansStep kCansSteps[] = {
    {5.182503604966906, -5.126830178299687},
    {2.586120737395915, -0.641538812403133},
    {2.567364126726186, -0.6391058222170474},
    {2.520560084348265, -0.6330225823828756},
    {2.410759275435182, -0.6186815444268036},
    {2.1883348130094173, -0.5893091162177136},
    {1.8595760874873613, -0.5449991062102938},
    {1.589020160467417, -0.5075811685214573},
    {1.5051653981684994, -0.4957799077972079},
    {1.4925557853149838, -0.49259266842078675},
};

}  // namespace

std::span<const CansStep> cans_steps() { return kCansSteps; }

namespace {

constexpr const char* kRule = "shampoo";

// Options of a step, named as in the public implementations.
std::vector<OptionFact> step_facts() {
  return with_step_size(
      "0.001", "0.1",
      {
          {"decay_form", "decoupled", "decoupled|corrected|peak_independent|l2",
           "how weights decay"},
          {"beta1", "0.9", "0.0..<1.0",
           "decay of the filtered gradient; 0: none"},
          {"beta2", "0.99", "0.0..1.0", "decay of the factors; 1: plain sums"},
          {"beta3", "auto", "auto|0.0..<1.0",
           "decay rate of the look-ahead of the gradient; auto: beta1"},
          {"bias_correction", "on", "on|off",
           "correct the bias of factors and filtered gradient"},
          {"grafting", "adam", "none|sgd|adagrad|rmsprop|adam",
           "the rule whose step determines the length of the update"},
          {"grafting_beta2", "0.99", "0.0..1.0",
           "decay of grafting's second moment, for rmsprop and adam"},
          {"grafting_epsilon", "1e-8", "0.0..inf",
           "added to the root of grafting's second moment"},
          {"classic_momentum", "0", "0.0..<1.0",
           "decay rate of a momentum of the direction, weight decay included; "
           "0: none"},
          {"classic_dampening", "0", "0.0..1.0",
           "fraction of the direction that this momentum leaves out"},
          {"classic_nesterov", "off", "on|off",
           "use the Nesterov form of this momentum"},
      });
}

std::vector<OptionFact> shampoo_factor_facts() {
  return {
      {"max_preconditioner_dim", "1024", "1..1000000",
       "a longer side is cut into blocks of this length"},
      {"merge", "2", "1|2|off", "merge small sizes down to this many axes"},
      {"start_step", "auto", "auto|never|1..1000000000000",
       "first refresh; auto: the frequency"},
      {"exponent", "auto", "auto|0.0..1.0,...",
       "factors are raised to minus this; auto: 1/(2 axes), 0: no factors; "
       "several: one per axis, for tensors with as many axes"},
      {"drop_weighting", "off", "on|off",
       "gradients enter factors with weight 1, not 1 - beta2, uncorrected"},
      {"kl", "off", "on|off",
       "factors see the gradient times the roots of the other axes"},
      {"trace_scaling", "off", "on|off",
       "divide factors by the root of their trace, at least epsilon"},
  };
}

std::vector<OptionFact> root_facts() {
  return {
      {"root", "auto", "auto|eigen|pseudo|newton|higher|cans",
       "inverse roots by eigenvectors (pseudo: of nonzero eigenvalues), by "
       "coupled iteration or, for exponent 0.5, by fixed polynomials; auto: "
       "newton on cuda, where products are cheap, eigen on cpu"},
      {"device", "cuda", "cuda|cpu",
       "the device that root=auto and products=auto are chosen for"},
      {"root_iterations", "18", "1..1000",
       "maximum number of steps of a coupled iteration"},
      {"root_tolerance", "1e-6", "0.0..1.0",
       "a coupled iteration ends below this error"},
      {"root_order", "3", "2..10", "order of root=higher"},
      {"epsilon", "1e-12", "0.0..inf",
       "added to factors; not for root=higher, 0 for root=pseudo"},
      {"root_abs_epsilon", "1e-12", "0.0..inf", "the same for root=higher"},
      {"root_rel_epsilon", "1e-5", "0.0..1.0",
       "the same times their norm, if that is more; 0 for root=pseudo"},
      {"perturb", "before", "before|after",
       "root=eigen: add before or after the decomposition"},
      {"rank_rtol", "auto", "auto|0.0..1.0",
       "root=pseudo: eigenvalues up to this fraction of the largest count as "
       "0; auto: unit of rounding times the side"},
      {"rank_atol", "0", "0.0..inf", "root=pseudo: so do those up to this"},
  };
}

std::vector<OptionFact> make_shampoo_option_facts() {
  std::vector<OptionFact> facts = refresh_option_facts("10");
  for (auto make :
       {step_facts, shampoo_factor_facts, root_facts, product_option_facts})
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

// A pseudo-inverse is that of the factor itself, without damping: a preset's
// damping becomes 0, the caller's is refused.
void choose_damping(RuleOptions& options, const RuleOptions& given) {
  if (options.at("root") != "pseudo") return;
  for (const char* name : {"epsilon", "root_rel_epsilon"}) {
    if (given.contains(name) && real_option(options, name) != 0)
      throw UsageError(cat("rule ", kRule, ": ", name, "=", options.at(name),
                           ", but root=pseudo does not damp factors; omit it "
                           "or use root=eigen"));
    options.at(name) = "0";
  }
}

// Replaces "auto" by what is best on the device.
RuleOptions all_in_force(const RuleOptions& given) {
  RuleOptions options =
      options_in_force(kRule, shampoo_option_facts(), shampoo_presets(), given);
  std::string& root = options.at("root");
  if (root == "auto")
    root = device_kind(options.at("device")).multiplies_cheaply ? "newton"
                                                                : "eigen";
  choose_damping(options, given);
  choose_products(options);
  return options;
}

// The fraction with the smallest terms that equals x up to rounding, 0 < x <=
// 1, by its continued fraction.
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

InversePower read_exponent(const RuleOptions& options, double value) {
  if (value == 0) return InversePower{1, 0};
  const std::string& text = word_option(options, "exponent");
  const auto fraction = as_fraction(value);
  if (!fraction)
    throw UsageError(cat("rule ", kRule, ": exponent=", text,
                         " is not a fraction with terms up to 1000"));
  if (word_option(options, "root") == "newton" && fraction->q != 1)
    throw UsageError(cat("rule ", kRule, ": root=newton takes exponents 1/p, ",
                         "but exponent=", text, " is ", fraction->q, "/",
                         fraction->p, "; use root=higher or eigen"));
  return *fraction;
}

std::vector<InversePower> read_exponents(const RuleOptions& options) {
  std::vector<InversePower> exponents;
  if (word_option(options, "exponent") == "auto") return exponents;
  for (double value : reals_option(options, "exponent"))
    exponents.push_back(read_exponent(options, value));
  return exponents;
}

std::optional<int64_t> read_start(const RuleOptions& options, int period) {
  const std::string& text = word_option(options, "start_step");
  if (text == "never") return std::nullopt;
  if (text == "auto") return period;
  const int64_t start = integer_option(options, "start_step");
  if (start < period)
    throw UsageError(cat("rule ", kRule, ": start_step=", start,
                         " is less than precondition_frequency=", period,
                         "; raise start_step or lower precondition_frequency"));
  return start;
}

RootOptions read_root(const RuleOptions& options) {
  RootOptions root;
  root.method = choice_option<RootMethod>(options, "root",
                                          {{"eigen", RootMethod::kEigen},
                                           {"pseudo", RootMethod::kPseudo},
                                           {"newton", RootMethod::kNewton},
                                           {"higher", RootMethod::kHigher},
                                           {"cans", RootMethod::kCans}});
  root.epsilon = real_option(options, "epsilon");
  root.rel_epsilon = real_option(options, "root_rel_epsilon");
  root.abs_epsilon = real_option(options, "root_abs_epsilon");
  root.perturb_before = word_option(options, "perturb") == "before";
  root.max_iterations = integer_option(options, "root_iterations");
  root.tolerance = real_option(options, "root_tolerance");
  root.order = static_cast<int>(integer_option(options, "root_order"));
  if (word_option(options, "rank_rtol") != "auto")
    root.rank_rtol = real_option(options, "rank_rtol");
  root.rank_atol = real_option(options, "rank_atol");
  return root;
}

BlockingOptions read_blocking(const RuleOptions& options) {
  const bool off = word_option(options, "merge") == "off";
  return {integer_option(options, "max_preconditioner_dim"),
          off ? 0 : static_cast<int>(integer_option(options, "merge"))};
}

double read_classic_momentum(const RuleOptions& options) {
  const double momentum = real_option(options, "classic_momentum");
  if (momentum == 0 && real_option(options, "classic_dampening") != 0)
    throw UsageError(cat("rule ", kRule, ": classic_dampening=",
                         word_option(options, "classic_dampening"),
                         " needs a classic_momentum above 0"));
  if (momentum == 0 && switch_option(options, "classic_nesterov"))
    throw UsageError(cat("rule ", kRule,
                         ": classic_nesterov=on needs a classic_momentum above "
                         "0"));
  return momentum;
}

double read_beta3(const RuleOptions& options) {
  const bool alike = word_option(options, "beta3") == "auto";
  return real_option(options, alike ? "beta1" : "beta3");
}

}  // namespace

const std::vector<OptionFact>& shampoo_option_facts() {
  static const std::vector<OptionFact> facts = make_shampoo_option_facts();
  return facts;
}

const std::vector<Preset>& shampoo_presets() {
  static const std::vector<Preset> presets = {
      {"canzona", "two-sided, grafted from Adam, with relative damping", {}},
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
    : in_force(all_in_force(given)),
      refresh(read_refresh(kRule, in_force)),
      start_step(read_start(in_force, refresh.period)),
      blocking(read_blocking(in_force)),
      root(read_root(in_force)),
      exponents(read_exponents(in_force)),
      learning_rate(real_option(in_force, "learning_rate")),
      weight_decay(real_option(in_force, "weight_decay")),
      decay_form(word_option(in_force, "decay_form")),
      beta1(real_option(in_force, "beta1")),
      beta2(real_option(in_force, "beta2")),
      beta3(read_beta3(in_force)),
      bias_correction(switch_option(in_force, "bias_correction")),
      drop_weighting(switch_option(in_force, "drop_weighting")),
      kl(switch_option(in_force, "kl")),
      trace_scaling(switch_option(in_force, "trace_scaling")),
      classic_momentum(read_classic_momentum(in_force)),
      classic_dampening(real_option(in_force, "classic_dampening")),
      classic_nesterov(switch_option(in_force, "classic_nesterov")),
      grafting(choice_option<Grafting>(in_force, "grafting",
                                       {{"none", Grafting::kNone},
                                        {"sgd", Grafting::kSgd},
                                        {"adagrad", Grafting::kAdagrad},
                                        {"rmsprop", Grafting::kRmsprop},
                                        {"adam", Grafting::kAdam}})),
      grafting_beta2(real_option(in_force, "grafting_beta2")),
      grafting_epsilon(real_option(in_force, "grafting_epsilon")),
      splits_products(rules::splits_products(in_force)) {
  for (int axis = 0; axis < 2; ++axis)
    power(2, axis);  // throws if the root method cannot compute it
}

InversePower ShampooOptions::power(int order, int axis) const {
  InversePower power{2 * order, 1};
  if (exponents.size() == 1)
    power = exponents[0];
  else if (std::ssize(exponents) == order)
    power = exponents[static_cast<size_t>(axis)];
  const bool is_half = power.p == 2 && power.q == 1;
  if (root.method == RootMethod::kCans && power.q != 0 && !is_half)
    throw UsageError(cat("rule ", kRule,
                         ": root=cans gives exponent 0.5, but axis ", axis,
                         " of ", order, " has ", power.q, "/", power.p,
                         "; use exponent=0.5 or another root"));
  return power;
}

bool ShampooOptions::is_refresh(int64_t step, int phase) const {
  if (!start_step) return false;
  const int64_t t = scheduled_step(step, phase);
  return t == *start_step || (t > *start_step && t % refresh.period == 0);
}

AxisSizes merge_sizes(std::span<const int64_t> dims,
                      const BlockingOptions& options) {
  static constexpr int64_t kEmpty[] = {0};
  static constexpr int64_t kOne[] = {1};
  if (std::find(dims.begin(), dims.end(), 0) != dims.end())
    return AxisSizes(kEmpty);
  if (dims.empty()) return AxisSizes(kOne);
  if (options.merge == 0) return AxisSizes(dims);
  auto remain = std::count_if(dims.begin(), dims.end(),
                              [](int64_t size) { return size != 1; });
  AxisSizes merged;
  int64_t running = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 1) continue;
    if (running == 1) {
      running = dims[i];
    } else if (remain > options.merge && running <= options.max_dim / dims[i]) {
      running *= dims[i];
      --remain;
    } else {
      merged.push_back(running);
      running = dims[i];
    }
  }
  merged.push_back(running);
  merged.reverse();
  return merged;
}

namespace {

std::string factor_name(int axis, int order) {
  if (order > 2) return cat("F_", axis);
  return axis == 0 ? "L" : "R";
}

FactorLayout factors_of(const ShampooOptions& options,
                        std::span<const int64_t> dims, int first_state) {
  const Blocking blocking(merge_sizes(dims, options.blocking),
                          options.blocking.max_dim);
  FactorLayout::States states;
  for (int axis = 0; axis < blocking.order(); ++axis)
    states.axes[static_cast<size_t>(axis)] =
        options.has_factor(blocking.order(), axis);
  states.states_per_kind = 2;  // factor and inverse root
  states.first_state = first_state;
  return {blocking, states};
}

}  // namespace

ShampooLayout::ShampooLayout(const ShampooOptions& options,
                             std::span<const int64_t> dims)
    : filtered_grad_(options.filters() ? 0 : kNone),
      grafting_(options.grafts_from_moment() ? filtered_grad_ + 1 : kNone),
      factors_(
          factors_of(options, dims, std::max(filtered_grad_, grafting_) + 1)),
      has_momentum_(options.has_momentum()) {}

int ShampooLayout::refresh_failures() const {
  return num_factors() > 0 ? factors_.end_state() : kNone;
}

int ShampooLayout::momentum() const {
  if (!has_momentum_) return kNone;
  return std::max(factors_.end_state(), refresh_failures() + 1);
}

std::vector<StateFact> ShampooLayout::states(
    std::span<const int64_t> dims) const {
  const std::vector<int64_t> whole(dims.begin(), dims.end());
  std::vector<StateFact> states;
  if (filtered_grad_ != kNone)
    states.push_back(owned_state("filtered_grad", whole));
  if (grafting_ != kNone)
    states.push_back(owned_state("grafting_avg_sq", whole));
  for (int axis = 0; axis < blocking().order(); ++axis) {
    if (!has_factor(axis)) continue;
    const std::string name = factor_name(axis, blocking().order());
    std::string suffix;
    for (const auto& [count, d] : blocking().side(axis).kinds()) {
      const std::vector<int64_t> stack = {
          checked_mul(count, blocking().blocks_across(axis), "blocks"), d, d};
      states.push_back(owned_state(cat(name, suffix), stack));
      states.push_back(
          owned_state(cat("inv_", name, suffix), stack, Initially::kIdentity));
      suffix = "_edge";
    }
  }
  if (refresh_failures() != kNone)
    states.push_back(owned_state("refresh_failures",
                                 {blocking().num_blocks(), num_factors()}));
  if (has_momentum_)
    states.push_back({"momentum", whole, "fp32", Lives::kWithShard});
  return states;
}

namespace {

// Products needed to raise a matrix to a power by square-and-multiply.
int64_t products_of_power(int64_t p) {
  const auto bits = static_cast<uint64_t>(p);
  return std::bit_width(bits) - 1 + std::popcount(bits) - 1;
}

// Flops of an inverse root of a d x d matrix, in units of d³. Products of
// polynomials of one symmetric matrix cost one triangle, d³.
int64_t root_work(const RootOptions& root, InversePower power) {
  // Tridiagonal reduction, its eigenvectors and their back-transformation take
  // about 9 d³; the root is assembled as one triangle.
  if (root.method == RootMethod::kEigen || root.method == RootMethod::kPseudo)
    return 9 + 1;
  // Ten steps: the first starts from Z = I, the last does not need Y, and every
  // P but the first is a full product, not a triangle.
  if (root.method == RootMethod::kCans) return 9 * 2 + 9 + 9;
  // A condition number of 1e5 or 1e6 needs this many, whatever the limit.
  constexpr int64_t kUsualIterations = 18;
  const int64_t iterations = std::min(root.max_iterations, kUsualIterations);
  const int64_t raise = products_of_power(power.p);
  if (root.method == RootMethod::kNewton) return iterations * (raise + 2);
  return iterations * (raise + root.order) + raise + 1 +
         products_of_power(power.q);
}

// Without factors a step is one of Adam, with this many flops per element. With
// factors that is negligible.
constexpr int64_t kElementwise = 14;

// Along an axis of length a, over blocks of a x rest elements: a²·rest for the
// statistics (a triangle), 2a²·rest to apply the root, and the same again for
// each other axis with a KL factor.
RuleWork tensor_work(const ShampooOptions& options,
                     const ShampooLayout& layout) {
  RuleWork work;
  const Blocking& blocking = layout.blocking();
  if (blocking.empty()) return work;
  if (layout.num_factors() == 0) {
    work.every_step = Flops(kElementwise) * blocking.sizes()[0] *
                      blocking.elements_across(0).value();
    return work;
  }
  const int64_t per_step =
      3 + (options.kl ? 2 * (layout.num_factors() - 1) : 0);
  for (int axis = 0; axis < blocking.order(); ++axis) {
    if (!layout.has_factor(axis)) continue;
    const BlockedSide& side = blocking.side(axis);
    work.every_step += per_step * side.sum_of_squares() *
                       blocking.elements_across(axis).value();
    work.refresh +=
        root_work(options.root, options.power(blocking.order(), axis)) *
        side.sum_of_cubes() * blocking.blocks_across(axis);
  }
  return work;
}

std::array<int64_t, 2> sides_of(MatrixShape shape) {
  return {shape.rows, shape.cols};
}

}  // namespace

std::vector<StateFact> ShampooFacts::states(MatrixShape shape) const {
  return states_for("shampoo", shape, [&] {
    return ShampooLayout(options_, sides_of(shape)).states(sides_of(shape));
  });
}

std::vector<StateFact> ShampooFacts::tensor_states(
    const std::vector<int64_t>& dims) const {
  return ShampooLayout(options_, dims).states(dims);
}

RuleWork ShampooFacts::work(MatrixShape shape) const {
  return count_for("shampoo", shape, [&] {
    return tensor_work(options_, ShampooLayout(options_, sides_of(shape)));
  });
}

MatrixShape ShampooFacts::block(MatrixShape shape) const {
  const auto factors_of = [&](MatrixShape sides) {
    return ShampooLayout(options_, sides_of(sides)).factors();
  };
  return count_for("shampoo", shape,
                   [&] { return independent_block(shape, factors_of); });
}

std::vector<BlockState> ShampooFacts::block_states(MatrixShape shape,
                                                   int64_t number) const {
  const ShampooLayout layout(options_, sides_of(shape));
  return states_of_block(layout.factors(), number, layout.refresh_failures(),
                         layout.states(sides_of(shape)));
}

StripFacts ShampooFacts::strips(MatrixShape shape) const {
  return count_for("shampoo", shape, [&] {
    const ShampooLayout layout(options_, sides_of(shape));
    const int helped = helped_axis(layout.factors());
    if (helped < 0) return StripFacts{};
    const auto root_flops = [&](int axis) {
      const int64_t d = layout.blocking().sizes()[axis];
      return root_work(options_.root, options_.power(2, axis)) * cubic(d, d, d);
    };
    const int64_t d = layout.blocking().sizes()[helped];
    StripFacts facts = facts_of_helper(layout.factors(), helped, period());
    facts.strip = tensor_work(options_, layout).every_step;
    facts.factor_bytes = kRootSentAt + (Bytes(d) * d * kBytesPerFp32).value();
    facts.head_refresh = root_flops(1 - helped);
    facts.helper_refresh = root_flops(helped);
    return facts;
  });
}

std::vector<TeamState> ShampooFacts::team_states(MatrixShape shape, int,
                                                 int member) const {
  const ShampooLayout layout(options_, sides_of(shape));
  const int helped = helped_axis(layout.factors());
  if (helped < 0) return {};
  std::vector<StateFact> owned = layout.states(sides_of(shape));
  std::erase_if(owned, [](const StateFact& state) {
    return state.lives != Lives::kWithOwner;
  });
  return states_with_helper(layout.factors(), helped, std::move(owned),
                            layout.refresh_failures(), -1, member != 0);
}

std::string ShampooFacts::algorithm(MatrixShape shape) const {
  if (ShampooLayout(options_, sides_of(shape)).num_factors() == 0)
    return "elementwise";
  return word_option(options_.in_force, "root");
}

RuleEntry shampoo_entry() {
  return {"shampoo",
          "inverse roots of the row and column statistics",
          shampoo_option_facts(),
          shampoo_presets(),
          make_facts<ShampooFacts>,
          {{"tiny", "0.003"}, {"small", "0.00075"}},
          {short_period()}};
}

}  // namespace canzona::rules
