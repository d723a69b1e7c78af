#include "canzona/sim/prediction_inputs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "canzona/base/text.h"

namespace canzona::sim {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

// Attention that takes more of the flops than this matters.
constexpr double kMuchAttention = 0.2;

bool is_measured(const CostBasis& cost) {
  return cost.source != CostBasis().source;
}

std::string rules_text(const PredictionBasis& basis) {
  if (basis.rule == kElementRule) return "";
  if (is_measured(basis.cost))
    return cat("; rules as measured on ", printable(basis.cost.source));
  return cat("; rules at ", 1 / basis.cost.seconds_per_tick / kTera,
             " Tflop/s, not measured");
}

std::string rates_text(const Workload& work) {
  if (!work.measured.empty()) return "modules as measured";
  if (!work.rates.empty()) return work.rates;
  return cat(work.compute.flops_per_second / kTera, " Tflop/s nominal");
}

// Rules with phases refresh something now and then: by a decomposition.
bool decomposes(const std::string& rule) {
  return std::ranges::count(rules_with("phases"), rule) > 0;
}

// Returns the share of all flops that attention takes.
double attention_share(const Model& model, const ComputeLoad& load) {
  const std::vector<double> weights =
      weights_per_token(model, load.experts_per_token);
  const double products = std::reduce(weights.begin(), weights.end());
  const double attention = static_cast<double>(load.length) *
                           static_cast<double>(load.width) *
                           static_cast<double>(model.num_layers);
  return attention > 0 ? attention / (attention + products) : 0;
}

// A model with layers may have matrices beside them.
bool has_tower(const Model& model) {
  return model.num_layers > 0 &&
         std::ranges::any_of(model.tensors, [](const Tensor& tensor) {
           return tensor.layer < 0 && tensor.role == Role::kMatrix;
         });
}

// Attention that counts as products, although it takes much of the time.
std::string attention_gap(const PredictionBasis& basis) {
  const ComputeLoad& load = basis.work.compute;
  const bool has_own_rate = load.attention_flops_per_second > 0;
  if (has_own_rate || !basis.work.measured.empty() || load.tokens == 0)
    return "";
  const double share = attention_share(basis.model, load);
  if (share < kMuchAttention) return "";
  return cat("attention: ", std::round(100 * share),
             " % of the flops, taken at the rate of products; it is slower on "
             "most cards, and --gpu has a rate for it");
}

}  // namespace

std::string describe_inputs(const PredictionBasis& basis) {
  const Links& links = basis.links;
  return cat(rates_text(basis.work), "; links ",
             links.intra_bytes_per_second / kGiga, " and ",
             links.inter_bytes_per_second / kGiga, " GB/s ",
             links.nominal ? "nominal" : "given", rules_text(basis));
}

std::vector<std::string> known_gaps(const PredictionBasis& basis) {
  std::vector<std::string> gaps;
  if (decomposes(basis.rule) && !is_measured(basis.cost))
    gaps.push_back(
        cat(basis.rule,
            ": decompositions are taken at the rate of products; published "
            "steps are 8 to 10 times longer; a table of `canzona calibrate` "
            "(--cost) has measured rates"));
  if (basis.mesh.cp > 1)
    gaps.emplace_back("cp: exchanges of keys and values are not modelled");
  if (basis.mesh.pp > 1)
    gaps.emplace_back(
        "pp: virtual stages, which make the bubble smaller, are not modelled");
  if (has_tower(basis.model))
    gaps.emplace_back(
        "vision tower: it computes as if every token passed through it");
  const std::string attention = attention_gap(basis);
  if (!attention.empty()) gaps.push_back(attention);
  return gaps;
}

}  // namespace canzona::sim
