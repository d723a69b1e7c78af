#include "canzona/rules/muon/facts.h"

#include <algorithm>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/rules/options.h"
#include "canzona/rules/strips.h"

namespace canzona::rules {
namespace {

std::string set_names() {
  std::vector<std::string> names;
  for (const CoefficientSet& set : coefficient_sets())
    names.emplace_back(set.name);
  return join(names, "|");
}

std::vector<OptionFact> make_options() {
  std::vector<OptionFact> options = with_step_size(
      "0.001", "0.1",
      {
          {"decay_form", "decoupled", "decoupled|independent|palm|l2",
           "a weight loses lr*wd, wd or lr^2*wd of itself per step; l2: wd*p "
           "is added to the gradient"},
          {"cautious_decay", "off", "on|off",
           "a weight decays only if its sign equals the update's, or one is 0"},
          {"momentum", "0.95", "0.0..<1.0", "decay rate of the momentum"},
          {"momentum_form", "ema", "ema|heavy_ball",
           "average of the gradients, or their decaying sum"},
          {"nesterov", "on", "on|off", "use Nesterov momentum"},
          {"coefficients", "simple", cat(set_names(), "|TRIPLES"),
           "Newton-Schulz coefficients: a set, or numbers a,b,c;a,b,c;..."},
          {"overrun", "last", "last|cycle",
           "beyond the last coefficients: repeat them, or start over"},
          {"steps", "auto", "auto|1..99",
           "Newton-Schulz steps; auto: the number the set is designed for"},
          {"newton_schulz", "auto", "standard|symmetric|gram|auto",
           "form of Newton-Schulz; auto: the fastest for each shape"},
          {"restarts", "auto", "auto|0..98",
           "restarts of the gram form, fewer than steps; auto: as many as the "
           "set needs, in bf16 after every one or two steps"},
          {"strips", "auto", "auto|1|2|4|8",
           "strips of the long side, whose Gram matrices are added by a binary "
           "tree; a team of ranks can share them"},
          {"precision", "auto", "auto|fp16|bf16|fp32|fp64",
           "of the products; auto: fp16 on cuda, bf16 on cpu; a run uses fp32 "
           "on a CPU with neither AMX nor AVX-512 BF16"},
          {"device", "cuda", "cuda|cpu",
           "the device that options set to auto are chosen for"},
          {"normalization", "frobenius", "frobenius|schatten4",
           "the norm that the matrix is divided by"},
          {"norm_factor", "auto", "auto|0.5..2.0",
           "multiplies the norm; auto: what the set needs"},
          {"epsilon", "1e-07", "0.0..1.0", "keeps the norm away from zero"},
          {"epsilon_mode", "clamp", "clamp|add",
           "the norm is at least epsilon, or epsilon is added"},
          {"scale", "match_rms", "match_rms|original|sqrt_max|unit_rms|none",
           "of the update: 0.2 sqrt(max(m,n)), sqrt(max(1,m/n)), "
           "sqrt(max(m,n)), "
           "sqrt(m/n), 1"},
          {"scale_shape", "matrix", "matrix|last_two",
           "m and n are the sizes of the matrix, or of the tensor's last two "
           "axes"},
          {"scale_extra", "1", "0.0..inf", "additional factor of the update"},
          {"flatten", "none", "none|first_dim",
           "a tensor with more axes is a stack of matrices, or one matrix of "
           "its first size by all others"},
          {"column_heads", "1", "1..1048576",
           "every matrix consists of this many heads side by side, each "
           "updated by itself; set by heads= and --split output-head"},
          {"unsafe", "off", "off|on",
           "allow settings that are known to do harm"},
      });
  for (OptionFact& link : muon_link_options())
    options.push_back(std::move(link));
  return options;
}

// The values of a preset, and those that differ in another that builds on it.
RuleOptions with(RuleOptions values, const RuleOptions& more) {
  for (const auto& [name, value] : more) values[name] = value;
  return values;
}

std::vector<Preset> make_presets() {
  const RuleOptions moonlight = {{"momentum_form", "heavy_ball"},
                                 {"overrun", "cycle"},
                                 {"epsilon_mode", "add"}};
  const RuleOptions nvidia = {
      {"learning_rate", "0.0003"}, {"weight_decay", "0.01"},
      {"nesterov", "off"},         {"coefficients", "quintic"},
      {"overrun", "cycle"},        {"epsilon", "1e-15"},
      {"scale", "sqrt_max"}};
  const RuleOptions dion = {
      {"learning_rate", "0.01"},       {"weight_decay", "0.01"},
      {"momentum_form", "heavy_ball"}, {"nesterov", "off"},
      {"coefficients", "polar-dion"},  {"epsilon", "1e-08"},
      {"epsilon_mode", "add"},         {"scale", "unit_rms"}};
  return {
      {"canzona", "AdamW's learning rates carry over", {}},
      {"keller",
       "KellerJordan/Muon",
       {{"learning_rate", "0.02"},
        {"weight_decay", "0"},
        {"epsilon_mode", "add"},
        {"overrun", "cycle"},
        {"scale", "original"}}},
      {"moonlight", "MoonshotAI/Moonlight", moonlight},
      {"torch",
       "torch.optim.Muon",
       {{"overrun", "cycle"}, {"scale", "original"}}},
      {"nvidia", "NVIDIA-NeMo/Emerging-Optimizers", nvidia},
      {"dion", "microsoft/dion", dion},
      {"normuon", "NorMuon of microsoft/dion",
       with(dion,
            {{"second_moment", "normuon"}, {"second_moment_axis", "rows"}})},
      {"nanochat",
       "karpathy/nanochat: MuonEq, Muon+ and NorMuon",
       {{"learning_rate", "0.02"},
        {"weight_decay", "0.28"},
        {"cautious_decay", "on"},
        {"decay_lr", "scaled"},
        {"coefficients", "polar-dion"},
        {"norm_factor", "1.01"},
        {"epsilon", "1e-06"},
        {"epsilon_mode", "add"},
        {"scale", "original"},
        {"equilibrate", "rows"},
        {"renorm", "on"},
        {"second_moment", "normuon"},
        {"beta2", "0.9"},
        {"second_moment_eps", "1e-10"},
        {"second_moment_eps_mode", "clamp"}}},
      {"nvidia-normuon", "NorMuon of NVIDIA-NeMo/Emerging-Optimizers",
       with(nvidia, {{"second_moment", "normuon"},
                     {"second_moment_eps_mode", "clamp"}})},
      {"nvidia-adamuon", "AdaMuon of NVIDIA-NeMo/Emerging-Optimizers",
       with(nvidia, {{"second_moment", "adamuon"}})},
      {"nvidia-namo", "NAMO of NVIDIA-NeMo/Emerging-Optimizers",
       with(nvidia, {{"second_moment", "namo"}})},
      {"muonh", "MuonH: weights keep their norms",
       with(nvidia, {{"weight_decay", "0"}, {"constraint", "hyperball"}})},
      {"scion", "Scion of NVIDIA-NeMo/Emerging-Optimizers, hidden layers",
       with(nvidia, {{"weight_decay", "1"}, {"scale", "unit_rms"}})},
      {"kimi-k2", "Moonlight's, to be used with QK-clip at 100", moonlight},
  };
}

bool is_custom(const std::string& coefficients) {
  return coefficients.find(',') != std::string::npos;
}

[[noreturn]] void refuse(std::string_view what, std::string_view why) {
  throw UsageError(cat("rule muon: ", what, " is refused: ", why,
                       "; set unsafe=on to allow it"));
}

void resolve_steps(RuleOptions& options) {
  const std::string& coefficients = options.at("coefficients");
  std::string& steps = options.at("steps");
  if (is_custom(coefficients)) {
    if (steps == "auto")
      steps = std::to_string(read_triples(coefficients).size());
    return;
  }
  const CoefficientSet& set = coefficient_set(coefficients);
  if (steps == "auto") steps = std::to_string(set.usual_steps);
  const bool fewer = switch_option(options, "unsafe") &&
                     integer_option(options, "steps") < set.usual_steps;
  if (!set.open_ended && !fewer && steps != std::to_string(set.usual_steps))
    throw UsageError(cat("rule muon: steps=", steps, ", but ", set.name,
                         " has exactly ", set.usual_steps, "; omit steps"));
}

// The set `cans` has no headroom above 1 for bf16's rounding errors.
bool stands_bf16(const RuleOptions& options) {
  return options.at("coefficients") != "cans";
}

void resolve_precision(RuleOptions& options) {
  std::string& precision = options.at("precision");
  const DeviceKind& device = device_kind(options.at("device"));
  if (precision == "auto")
    precision = device.has_fp16        ? "fp16"
                : stands_bf16(options) ? "bf16"
                                       : "fp32";
  if (precision == "fp16" && !device.has_fp16)
    throw UsageError(cat("rule muon: precision=fp16 needs cuda; on ",
                         device.name, " use bf16 or fp32"));
}

void resolve_norm_factor(RuleOptions& options) {
  std::string& factor = options.at("norm_factor");
  if (factor != "auto") return;
  const std::string& coefficients = options.at("coefficients");
  factor = is_custom(coefficients)
               ? "1"
               : cat(coefficient_set(coefficients).norm_factor);
}

void resolve_restarts(RuleOptions& options) {
  std::string& restarts = options.at("restarts");
  const int64_t needed = muon_restarts_needed(options, options.at("precision"));
  if (restarts == "auto") restarts = std::to_string(needed);
  require_at_most("muon", options, "restarts",
                  integer_option(options, "steps") - 1, "steps-1");
  const std::string& precision = options.at("precision");
  const bool short_numbers = precision == "bf16" || precision == "fp16";
  if (short_numbers && integer_option(options, "restarts") < needed &&
      options.at("newton_schulz") != "standard" &&
      options.at("newton_schulz") != "symmetric")
    refuse(cat("restarts=", restarts, " in ", precision),
           cat("the Gram form needs ", needed, " for ", options.at("steps"),
               " steps, or rounding grows without bound"));
}

void require_decay_of_weights(const RuleOptions& options) {
  if (switch_option(options, "cautious_decay") &&
      options.at("decay_form") == "l2")
    throw UsageError(
        "rule muon: cautious_decay=on selects the weights that decay, but "
        "decay_form=l2 adds to gradients; use decoupled, independent or palm");
}

void refuse_harm(const RuleOptions& options) {
  const std::string& coefficients = options.at("coefficients");
  const double factor = real_option(options, "norm_factor");
  if (is_custom(coefficients)) {
    const std::string fault = first_fault(muon_coefficients(options));
    if (!fault.empty()) refuse("coefficients=" + coefficients, fault);
    return;
  }
  const CoefficientSet& set = coefficient_set(coefficients);
  const std::string what = cat("coefficients=", set.name);
  if (!set.hazard.empty()) refuse(what, set.hazard);
  if (!stands_bf16(options) && options.at("precision") == "bf16")
    refuse(what + " in bf16",
           "it has no headroom above 1, and one rounding error grows to 1e11");
  if (factor < std::min(set.norm_factor, 1.01))
    refuse(cat(what, " with norm_factor=", options.at("norm_factor")),
           cat("it has no headroom above 1 and needs at least ",
               std::min(set.norm_factor, 1.01)));
}

}  // namespace

const std::vector<OptionFact>& muon_options() {
  static const std::vector<OptionFact> options = make_options();
  return options;
}

const std::vector<Preset>& muon_presets() {
  static const std::vector<Preset> presets = make_presets();
  return presets;
}

// A segment of the Gram form multiplies a spurious negative eigenvalue by about
// a² each step. bf16 has too few bits for more than two such steps, or more
// than one with some sets; fp16 tolerates three, or two with those sets; fp32
// three.
int64_t muon_restarts_needed(const RuleOptions& in_force,
                             std::string_view precision) {
  const int64_t steps = integer_option(in_force, "steps");
  const std::string& coefficients = in_force.at("coefficients");
  int64_t longest = 3;
  if (precision == "bf16" || precision == "fp16") {
    CoefficientSet own;
    if (!is_custom(coefficients)) own = coefficient_set(coefficients);
    longest = precision == "bf16" ? own.longest_segment_bf16
                                  : own.longest_segment_fp16;
  }
  return (steps + longest - 1) / longest - 1;
}

RuleOptions muon_options_in_force(const RuleOptions& given) {
  RuleOptions options =
      options_in_force("muon", muon_options(), muon_presets(), given);
  const bool unsafe = switch_option(options, "unsafe");
  require_decay_of_weights(options);
  if (options.at("second_moment_norm_eps") == "auto")
    options["second_moment_norm_eps"] = options.at("second_moment_eps");
  require_muon_links(options);
  resolve_steps(options);
  resolve_precision(options);
  resolve_norm_factor(options);
  if (!unsafe) refuse_harm(options);
  if (unsafe && options.at("restarts") != "auto") {
    require_at_most("muon", options, "restarts",
                    integer_option(options, "steps") - 1, "steps-1");
    return options;
  }
  resolve_restarts(options);
  return options;
}

std::vector<Coefficients> muon_coefficients(const RuleOptions& in_force) {
  const std::string& named = in_force.at("coefficients");
  std::vector<Coefficients> set;
  if (is_custom(named)) {
    for (const auto& [a, b, c] : read_triples(named)) set.push_back({a, b, c});
  } else {
    set = coefficient_set(named).steps;
  }
  return unrolled(
      set, integer_option(in_force, "steps"),
      in_force.at("overrun") == "cycle" ? Overrun::kCycle : Overrun::kLast);
}

namespace {

int64_t bytes_of_number(std::string_view precision) {
  if (precision == "fp64") return 8;
  return precision == "fp32" ? kBytesPerFp32 : kBytesPerBf16;
}

// The flops of a step: of products with the long side, which can be cut into
// strips, and of products of m x m matrices, which the head of a team does.
struct MuonFlops {
  int64_t per_wide = 0;   // times m²n
  int64_t per_small = 0;  // times m³
};

// One multiply-add is two flops. A segment of k steps in Gram space is the
// triangle of XX' (m²n), k squares, k-1 products to collect Q, 2(k-1) to
// advance the Gram matrix (m³ each), and the full Q·X (2m²n). A step with c = 0
// needs no square.
MuonFlops muon_flops(NewtonSchulz form, int64_t steps, int64_t squares,
                     int64_t segments) {
  switch (form) {
    case NewtonSchulz::kStandard:
      return {4 * steps, 2 * squares};
    case NewtonSchulz::kSymmetric:
      return {3 * steps, squares};
    case NewtonSchulz::kGram:
      break;
  }
  return {3 * segments, squares + 3 * (steps - segments)};
}

// The Gram form is faster for m rows and n columns, m <= n, if n >= aspect·m
// and m >= rows. The values were measured in advance, so that the planner and
// all ranks choose alike.
struct GramFrom {
  int64_t rows;
  double aspect;
};
GramFrom gram_from(const RuleOptions& options, bool small) {
  const bool bf16 = options.at("precision") == "bf16" && !small;
  // On an H200, with batches of 512 rows and more, the symmetric form is as
  // fast or faster for square matrices, and the Gram form is faster for all
  // from an aspect of 1.6 on. With unsafe=on, tiny matrices in bf16 would have
  // to restart after every step.
  if (device_kind(options.at("device")).multiplies_cheaply)
    return {bf16 ? 32 : 1, 1.25};
  return bf16 ? GramFrom{128, 2.0} : GramFrom{64, 1.5};
}

// Matrices with at least this many rows, m <= n, get strips by default, as many
// as n columns are worth. At that size the sums over strips cost a single rank
// almost nothing compared with the products, and teams pay off.
constexpr int64_t kStripsFromRows = 1024;
int strips_worth(bool on_gpu, int64_t n) {
  constexpr int64_t kLeastWidth = 2048;
  if (!on_gpu)
    return static_cast<int>(std::min<int64_t>(kMostStrips, n / kLeastWidth));
  // On an H200, each of the S - 1 sums that wait for others costs a step as
  // much as 200 columns.
  constexpr int64_t kColumnsPerSum = 12288;
  return static_cast<int>(
      std::min<int64_t>(kMostStrips, n / kColumnsPerSum + 1));
}

}  // namespace

std::string_view to_string(NewtonSchulz form) {
  switch (form) {
    case NewtonSchulz::kStandard:
      return "standard";
    case NewtonSchulz::kSymmetric:
      return "symmetric";
    case NewtonSchulz::kGram:
      break;
  }
  return "gram";
}

MuonFacts::MuonFacts(const RuleOptions& given)
    : options_(muon_options_in_force(given)),
      links_(options_),
      coefficients_(muon_coefficients(options_)),
      restarts_(integer_option(options_, "restarts")),
      flattens_(options_.at("flatten") == "first_dim"),
      small_restarts_(muon_restarts_needed(options_, "fp32")),
      strips_(options_.at("strips") == "auto"
                  ? 0
                  : static_cast<int>(integer_option(options_, "strips"))),
      column_heads_(integer_option(options_, "column_heads")) {}

MuonStack MuonFacts::heads_of(MatrixShape shape) const {
  const int64_t heads =
      shape.column_heads > 1 ? shape.column_heads : column_heads_;
  if (shape.cols % heads != 0)
    throw UsageError(cat("rule muon: ", heads, " heads do not divide the ",
                         shape.cols, " columns of a matrix with ", shape.rows,
                         " rows"));
  return {{shape.rows, shape.cols / heads}, heads, heads > 1};
}

std::vector<StateFact> MuonFacts::states(MatrixShape shape) const {
  return states_for("muon", shape, [&] {
    std::vector<StateFact> states{
        {"momentum", {shape.rows, shape.cols}, "fp32", Lives::kWithShard}};
    const MuonStack heads = heads_of(shape);
    for (StateFact& more : links_.states(heads.shape)) {
      if (heads.by_columns) more.shape.insert(more.shape.begin(), heads.count);
      states.push_back(std::move(more));
    }
    return states;
  });
}

std::vector<StateFact> MuonFacts::tensor_states(
    const std::vector<int64_t>& dims) const {
  if (!flattens_ || dims.size() < 3) return RuleFacts::tensor_states(dims);
  return states(stack_of(dims).shape);
}

MuonStack MuonFacts::stack_of(const std::vector<int64_t>& dims) const {
  const size_t order = dims.size();
  if (order < 2) {
    std::vector<std::string> sides;
    for (int64_t d : dims) sides.push_back(std::to_string(d));
    throw UsageError(cat("rule muon: a tensor of shape ", join(sides, "x"),
                         " is not a matrix; use adamw for it"));
  }
  if (order == 2) return heads_of({dims[0], dims[1]});
  if (cuts_columns())
    throw UsageError(cat("rule muon: column_heads=", column_heads_,
                         " needs matrices, but a "
                         "tensor has ",
                         order, " axes"));
  const size_t kept = flattens_ ? 1 : order - 1;  // axes before the columns
  MuonStack stack{{dims[kept - 1], 1}, 1};
  for (size_t i = 0; i + 1 < kept; ++i)
    stack.count = checked_mul(stack.count, dims[i], "matrices in a tensor");
  for (size_t i = kept; i < order; ++i)
    stack.shape.cols = checked_mul(stack.shape.cols, dims[i], "columns");
  return stack;
}

bool MuonFacts::is_small(MatrixShape shape) const {
  constexpr int64_t kSmall = 64;
  return options_.at("precision") == "bf16" &&
         !switch_option(options_, "unsafe") &&
         std::min(shape.rows, shape.cols) <= kSmall;
}

// With S segments, gram minus symmetric is 3(K-S)·m²(m-n) flops: never
// positive, and zero for square matrices and for segments of one step, where
// the simpler symmetric form is used. Standard never costs less than symmetric.
MuonWay MuonFacts::way(MatrixShape shape) const {
  MuonWay way{NewtonSchulz::kSymmetric, is_small(shape), num_strips(shape)};
  const std::string& wanted = options_.at("newton_schulz");
  for (NewtonSchulz form : {NewtonSchulz::kStandard, NewtonSchulz::kSymmetric,
                            NewtonSchulz::kGram}) {
    if (wanted == to_string(form)) return {form, way.small, way.strips};
  }
  const int64_t restarts = way.small ? small_restarts_ : restarts_;
  const bool tie =
      shape.rows == shape.cols || is_empty(shape) || restarts + 1 == steps();
  if (tie) return way;
  const auto [m, n] = std::minmax(shape.rows, shape.cols);
  const GramFrom from = gram_from(options_, way.small);
  const bool gram = m >= from.rows && static_cast<double>(n) >=
                                          from.aspect * static_cast<double>(m);
  if (gram) way.form = NewtonSchulz::kGram;
  return way;
}

std::string MuonFacts::precision(MatrixShape shape) const {
  return way(shape).small ? "fp32" : options_.at("precision");
}

int64_t MuonFacts::num_squares() const {
  return std::count_if(coefficients_.begin(), coefficients_.end(),
                       [](const Coefficients& k) { return k.c != 0; });
}

// The direct forms restart after every step.
int64_t MuonFacts::num_segments(MuonWay way) const {
  if (way.form != NewtonSchulz::kGram) return steps();
  return 1 + (way.small ? small_restarts_ : restarts_);
}

RuleWork MuonFacts::work(MatrixShape shape) const {
  return count_for("muon", shape, [&] {
    const MuonStack heads = heads_of(shape);
    const MuonWay chosen = way(heads.shape);
    const auto [m, n] = std::minmax(heads.shape.rows, heads.shape.cols);
    const MuonFlops count =
        muon_flops(chosen.form, steps(), num_squares(), num_segments(chosen));
    return RuleWork{
        (count.per_wide * cubic(m, m, n) + count.per_small * cubic(m, m, m) +
         links_.flops(heads.shape)) *
            heads.count,
        Flops(0)};
  });
}

int MuonFacts::num_strips(MatrixShape shape) const {
  const auto [m, n] = std::minmax(shape.rows, shape.cols);
  if (strips_ != 0) return strips_that_fit(n, strips_);
  if (links_.any()) return 1;
  // A division that precedes rounding cannot wait for the norm of a Gram
  // matrix that is summed over strips.
  const DeviceKind& device = device_kind(options_.at("device"));
  if (m < kStripsFromRows || (device.divides_before_rounding &&
                              options_.at("normalization") == "schatten4"))
    return 1;
  return strips_that_fit(n, strips_worth(device.multiplies_cheaply, n));
}

StripFacts MuonFacts::strips(MatrixShape shape) const {
  return count_for("muon", shape, [&] {
    StripFacts facts;
    if (heads_of(shape).by_columns) return facts;
    const MuonWay chosen = way(shape);
    facts.strips = chosen.strips;
    if (facts.strips == 1) return facts;
    const auto [m, n] = std::minmax(shape.rows, shape.cols);
    const int64_t segments = num_segments(chosen);
    const MuonFlops count =
        muon_flops(chosen.form, steps(), num_squares(), segments);
    facts.strip = count.per_wide * cubic(m, m, widest_strip(n, facts.strips));
    facts.strip_sum = (chosen.form == NewtonSchulz::kStandard ? 2 : 1) *
                      cubic(m, m, widest_strip(n, facts.strips));
    facts.head = count.per_small * cubic(m, m, m);
    facts.segments = static_cast<int>(segments);
    facts.sum_elements = (Elements(m) * (m + 1)).value() / 2;
    facts.rounded_bytes = bytes_of_number(precision(shape));
    facts.factor_bytes =
        (Bytes(facts.sum_elements) * facts.rounded_bytes).value() +
        kFactorScalarBytes;
    facts.norm_bytes = kNormPartBytes;
    return facts;
  });
}

std::string MuonFacts::algorithm(MatrixShape shape) const {
  const MuonWay chosen = way(heads_of(shape).shape);
  return std::string(to_string(chosen.form)) + (chosen.small ? "_fp32" : "");
}

// A single restart comes in the middle, rounded down; with several restarts the
// first segments are the longer ones. In bf16, [2,4] of five steps survives
// what [1,3] does not: two levels of singular values under polar_express.
std::vector<int64_t> MuonFacts::restart_steps(bool small) const {
  const int64_t restarts = small ? small_restarts_ : restarts_;
  if (restarts == 1) return {std::max<int64_t>(1, steps() / 2)};
  std::vector<int64_t> after;
  for (int64_t i = 1; i <= restarts; ++i)
    after.push_back((i * steps() + restarts) / (restarts + 1));
  return after;
}

RuleEntry muon_entry() {
  return {"muon",
          "orthogonal factor of the momentum, by Newton-Schulz",
          muon_options(),
          muon_presets(),
          make_facts<MuonFacts>,
          {{"tiny", "0.01"}, {"small", "0.005"}},
          {{{"newton_schulz", "standard"}},
           {{"newton_schulz", "symmetric"}},
           {{"newton_schulz", "gram"}}}};
}

}  // namespace canzona::rules
