#include "canzona/rules/soap/facts.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/facts.h"
#include "canzona/rules/options.h"
#include "canzona/rules/strips.h"

namespace canzona {
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
    refuse_pair("nesterov=on and a beta3",
                "both blend the gradient in; choose one");
  if (own_beta3 && real_option(options, "beta1") == 0 &&
      real_option(options, "beta3") != 0)
    refuse_pair("beta3 without beta1", "there is no first moment to blend");
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

namespace {

AxisSizes sizes_of(std::span<const int64_t> dims) {
  AxisSizes sizes(dims);
  for (int64_t d : dims)
    if (d < 0) throw UsageError("negative side");
  if (dims.empty()) sizes.push_back(1);
  return sizes;
}

// Joins adjacent dims, from the first on, while their product is allowed. Dims
// of one are dropped.
AxisSizes merged(const AxisSizes& sizes, int64_t max_dim) {
  AxisSizes merged;
  int64_t joined = 1;
  for (int64_t next : sizes.span()) {
    if (joined <= max_dim / next) {
      joined *= next;
    } else if (joined > 1) {
      merged.push_back(joined);
      joined = next;
    } else {
      merged.push_back(next);
    }
  }
  if (joined > 1 || merged.order() == 0) merged.push_back(joined);
  return merged;
}

// A vector has a factor only on request, a long side only if it is cut, and an
// ignored axis never.
FactorLayout factors_of(const SoapOptions& options,
                        std::span<const int64_t> dims, int first_state) {
  AxisSizes sizes = sizes_of(dims);
  const bool is_vector = sizes.order() == 1;
  const bool is_empty = sizes.has_zero();
  if (options.merges_dims && !is_vector && !is_empty)
    sizes = merged(sizes, options.max_dim);
  const bool wanted = !is_empty && (!is_vector || options.precondition_1d);
  const bool cuts = wanted && options.cuts_long_sides;
  FactorLayout::States states;
  states.states_per_kind = options.keeps_eigenvalues() ? 3 : 2;
  states.first_state = first_state;
  for (int axis = 0; axis < sizes.order(); ++axis) {
    const auto at = static_cast<size_t>(axis);
    const bool ignored = sizes.order() > 1 && options.ignored_axes[at];
    states.axes[at] =
        wanted && !ignored && (cuts || sizes[axis] <= options.max_dim);
  }
  return {Blocking(sizes, cuts ? options.max_dim : Blocking::kUncut), states};
}

}  // namespace

SoapLayout::SoapLayout(const SoapOptions& options,
                       std::span<const int64_t> dims)
    : exp_avg_sq_(options.has_first_moment() ? 1 : 0),
      factors_(factors_of(options, dims, exp_avg_sq_ + 1)),
      refresh_failures_(factors_.end_state() +
                        (options.has_grafting_moment() ? 1 : 0)) {}

namespace {

// With strips=auto, factors of at least this side get strips, none of them
// narrower than the least width: what the sum over strips costs a single rank
// is then lost among the products.
constexpr int64_t kStripsFromSide = 1024;
constexpr int64_t kLeastStripWidth = 2048;

int strips_wanted(const SoapOptions& options, int64_t side, int64_t across) {
  if (options.strips != 0) return options.strips;
  if (side < kStripsFromSide) return 1;
  return static_cast<int>(
      std::clamp<int64_t>(across / kLeastStripWidth, 1, kMostStrips));
}

}  // namespace

SoapCut SoapLayout::cut(const SoapOptions& options) const {
  SoapCut cut;
  if (blocking().order() != 2 || blocking().empty() ||
      factors_.num_factors() != 1 || blocking().num_blocks() != 1)
    return cut;
  cut.axis = factors_.has_factor(0) ? 0 : 1;
  const int64_t side = blocking().sizes()[cut.axis];
  const int64_t across = blocking().sizes()[1 - cut.axis];
  // The long side of a square is its columns, as in plans.
  if (across > side || (across == side && cut.axis == 0))
    cut.strips = strips_that_fit(across, strips_wanted(options, side, across));
  return cut;
}

namespace {

using Refresh = SoapOptions::Refresh;
using Sort = SoapOptions::Sort;

// The cost of the factor of a side of length d on every step, where e is the
// product of the other sides: rotating the gradient (2d²e) and the update back
// (2d²e), and one triangle of the statistics (d²e). A first moment in the
// original space is rotated too, and so is a copy of the gradient for the KL
// factor of the other side.
Flops side_flops(const SoapOptions& soap, int64_t d, int64_t e) {
  int64_t products = 5;
  if (soap.has_first_moment() && !soap.moment_in_basis) products += 2;
  if (soap.kl) products += 2;
  return products * cubic(d, d, e);
}

// In thirds of d³: a product takes 6, Householder QR with Q formed 4 + 4, three
// rounds of Cholesky QR 3·(3 + 1 + 3), eigh about 27. Estimates of eigenvalues
// are a by-product of the next step's product; only those after the last step
// need a product of their own.
int64_t refresh_thirds(const SoapOptions& soap) {
  if (soap.refresh == Refresh::kEigh) return 27;
  const int64_t qr = soap.refresh == Refresh::kQr ? 8 : 21;
  const bool estimates_after = soap.sort != Sort::kBefore || soap.kl;
  return soap.power_steps * (6 + qr) + (estimates_after ? 6 : 0);
}

// A new basis, rounded to the nearest flop.
Flops basis_flops(const SoapOptions& soap, int64_t d) {
  const Flops thirds = refresh_thirds(soap) * cubic(d, d, d) + Flops(1);
  return Flops(thirds.value() / 3);
}

// Moving the first moment to a new basis: out of the old one and into the new
// one (4d²e), or by the product of both (2d³ + 2d²e), whichever is less.
Flops move_flops(const SoapOptions& soap, int64_t d, int64_t e) {
  if (!soap.has_first_moment() || !soap.moment_in_basis) return Flops(0);
  return 2 * cubic(d, d, e) + 2 * cubic(d, d, std::min(d, e));
}

Flops refresh_flops(const SoapOptions& soap, int64_t d, int64_t e) {
  return basis_flops(soap, d) + move_flops(soap, d, e);
}

// The work of a matrix in strips, each of which moves its own first moment.
RuleWork strips_work(const SoapOptions& soap, const SoapCut& cut, int64_t d,
                     int64_t e) {
  RuleWork work{side_flops(soap, d, e), basis_flops(soap, d)};
  for (int s = 0; s < cut.strips; ++s)
    work.refresh += move_flops(
        soap, d,
        strip_border(e, cut.strips, s + 1) - strip_border(e, cut.strips, s));
  return work;
}

// Counts the work of `count` blocks of these sides.
RuleWork blocks_work(const SoapOptions& soap, int64_t count,
                     std::span<const int64_t> sides,
                     std::span<const bool> has_factor) {
  RuleWork work;
  for (size_t i = 0; i < sides.size(); ++i) {
    if (!has_factor[i]) continue;
    const int64_t other = sides.size() == 2 ? sides[1 - i] : 1;
    work.every_step += count * side_flops(soap, sides[i], other);
    work.refresh += count * refresh_flops(soap, sides[i], other);
  }
  return work;
}

// Per element without factors: the rule is then Adam.
constexpr int64_t kAdamFlops = 14;

RuleWork layout_work(const SoapOptions& soap, const SoapLayout& layout) {
  const FactorLayout& factors = layout.factors();
  const Blocking& blocking = layout.blocking();
  const bool is_matrix = blocking.order() == 2;
  const BlockedSide one(1, 1);
  const bool has_factor[] = {factors.has_factor(0),
                             is_matrix && factors.has_factor(1)};
  if (const SoapCut cut = layout.cut(soap); cut.strips > 1)
    return strips_work(soap, cut, blocking.sizes()[cut.axis],
                       blocking.sizes()[1 - cut.axis]);
  RuleWork work;
  for (const auto& [num_rows, rows] : blocking.side(0).kinds()) {
    for (const auto& [num_cols, cols] :
         (is_matrix ? blocking.side(1) : one).kinds()) {
      const int64_t sides[] = {rows, cols};
      const int64_t count = checked_mul(num_rows, num_cols, "blocks");
      if (factors.num_factors() == 0)
        work.every_step += count * (kAdamFlops * cubic(rows, cols, 1));
      const RuleWork more = blocks_work(soap, count, sides, has_factor);
      work.every_step += more.every_step;
      work.refresh += more.refresh;
    }
  }
  return work;
}

// The states of an axis's factors of one length.
void add_factors(std::vector<StateFact>& states, const SoapOptions& soap,
                 const Blocking& blocking, int axis, size_t kind) {
  const int64_t d = blocking.side(axis).kinds()[kind].length;
  const bool lettered = blocking.order() <= 2;
  const std::string side =
      lettered ? (axis == 0 ? "L" : "R") : std::to_string(axis);
  const std::string end = kind > 0 ? "_edge" : "";
  std::vector<int64_t> square = {d, d};
  std::vector<int64_t> row = {d};
  if (soap.cuts_long_sides) {
    square.insert(square.begin(), blocking.stack_size(axis, kind));
    row.insert(row.begin(), square.front());
  }
  states.push_back(owned_state(cat(lettered ? "" : "F_", side, end), square));
  states.push_back(
      owned_state(cat("Q_", side, end), square, Initially::kIdentity));
  if (soap.keeps_eigenvalues())
    states.push_back(owned_state(cat("eigenvalues_", side, end), row));
}

std::vector<StateFact> layout_states(const SoapOptions& soap,
                                     const std::vector<int64_t>& dims) {
  const SoapLayout layout(soap, dims);
  std::vector<StateFact> states;
  if (soap.has_first_moment()) states.push_back(owned_state("exp_avg", dims));
  states.push_back(owned_state("exp_avg_sq", dims));
  const Blocking& blocking = layout.blocking();
  for (int axis = 0; axis < blocking.order(); ++axis) {
    if (!layout.factors().has_factor(axis)) continue;
    for (size_t kind = 0; kind < blocking.side(axis).kinds().size(); ++kind)
      add_factors(states, soap, blocking, axis, kind);
  }
  if (soap.has_grafting_moment())
    states.push_back(owned_state("grafting_avg_sq", dims));
  if (layout.factors().num_factors() > 0)
    states.push_back(
        owned_state("refresh_failures", {layout.factors().num_counters()}));
  return states;
}

}  // namespace

SoapFacts::SoapFacts(const RuleOptions& given)
    : in_force_(soap_options_in_force(given)),
      soap_(read_soap_options(in_force_)) {}

std::vector<StateFact> SoapFacts::states(MatrixShape shape) const {
  return states_for("soap", shape, [&] {
    return layout_states(soap_, {shape.rows, shape.cols});
  });
}

std::vector<StateFact> SoapFacts::tensor_states(
    const std::vector<int64_t>& dims) const {
  try {
    return layout_states(soap_, dims);
  } catch (const UsageError& error) {
    std::vector<std::string> sides;
    for (int64_t d : dims) sides.push_back(std::to_string(d));
    throw UsageError(
        cat("rule soap, tensor ", join(sides, "x"), ": ", error.what()));
  }
}

RuleWork SoapFacts::work(MatrixShape shape) const {
  return count_for("soap", shape, [&] {
    const int64_t dims[] = {shape.rows, shape.cols};
    return layout_work(soap_, SoapLayout(soap_, dims));
  });
}

MatrixShape SoapFacts::block(MatrixShape shape) const {
  if (soap_.normalizes_update || soap_.max_update_rms > 0) return shape;
  const auto factors_of = [&](MatrixShape sides) {
    const int64_t dims[] = {sides.rows, sides.cols};
    return SoapLayout(soap_, dims).factors();
  };
  return count_for("soap", shape,
                   [&] { return independent_block(shape, factors_of); });
}

std::vector<BlockState> SoapFacts::block_states(MatrixShape shape,
                                                int64_t number) const {
  const std::vector<int64_t> dims = {shape.rows, shape.cols};
  const SoapLayout layout(soap_, dims);
  const bool counts = layout.factors().num_factors() > 0;
  return states_of_block(layout.factors(), number,
                         counts ? layout.refresh_failures() : -1,
                         layout_states(soap_, dims));
}

StripFacts SoapFacts::strips(MatrixShape shape) const {
  return count_for("soap", shape, [&] {
    const int64_t dims[] = {shape.rows, shape.cols};
    const SoapCut cut = SoapLayout(soap_, dims).cut(soap_);
    StripFacts facts;
    facts.strips = cut.strips;
    if (cut.strips == 1) return facts;
    const int64_t d = dims[cut.axis];
    const int64_t width = widest_strip(dims[1 - cut.axis], cut.strips);
    facts.strip = side_flops(soap_, d, width);
    facts.strip_sum = cubic(d, d, width);
    facts.segments = 1;
    facts.sum_elements = (Elements(d) * (d + 1)).value() / 2;
    facts.rounded_bytes = kBytesPerFp32;
    facts.factor_bytes =
        soap_factor_basis_at(d) + (Bytes(d) * d * kBytesPerFp32).value();
    facts.strip_refresh = move_flops(soap_, d, width);
    facts.head_refresh = basis_flops(soap_, d);
    facts.factors_at_refresh = soap_.period > 1;
    return facts;
  });
}

std::vector<TeamState> SoapFacts::team_states(MatrixShape shape, int members,
                                              int place) const {
  const std::vector<int64_t> dims = {shape.rows, shape.cols};
  const SoapLayout layout(soap_, dims);
  const SoapCut cut = layout.cut(soap_);
  const auto across = static_cast<size_t>(1 - cut.axis);
  const auto border = [&](int of) {
    return seat_border(dims[across], cut.strips, members, of);
  };
  const int basis = layout.factors().begin_state() + 1;
  std::vector<TeamState> states;
  int number = 0;
  for (StateFact& whole : layout_states(soap_, dims)) {
    const bool is_moment = number < layout.factors().begin_state();
    const bool is_basis = number == basis;
    ++number;
    if (place != 0 && !is_moment && !is_basis) continue;
    TeamState& state = states.emplace_back();
    state.in_matrix = {whole.name, whole.shape,
                       std::vector<int64_t>(whole.shape.size(), 0)};
    state.given = place == 0 || is_moment;
    state.own = std::move(whole);
    if (!is_moment) continue;
    state.own.shape[across] = border(place + 1) - border(place);
    state.in_matrix.first[across] = border(place);
  }
  return states;
}

std::string SoapFacts::algorithm(MatrixShape shape) const {
  const int64_t dims[] = {shape.rows, shape.cols};
  const bool rotates = SoapLayout(soap_, dims).factors().num_factors() > 0;
  return rotates ? word_option(in_force_, "refresh") : "adam";
}

RuleEntry soap_entry() {
  return {"soap",
          "Adam in the eigenbasis of the row and column statistics",
          soap_option_facts(),
          soap_presets(),
          make_facts<SoapFacts>,
          {{"tiny", "0.012"}, {"small", "0.003"}},
          {short_period()}};
}

}  // namespace canzona
