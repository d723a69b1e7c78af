#include "canzona/train/qk_clip.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/model/weights.h"

namespace canzona::train {
namespace {

// Returns the factor of each row of a tensor of queries, keys and values.
std::vector<float> rows_of(const Tensor& qkv, const QkFactors& factors) {
  std::vector<float> rows(index(qkv.rows()), 1.0F);
  for (const Section& section : qkv.sections) {
    if (section.name != "q" && section.name != "k") continue;
    const std::vector<double>& of =
        section.name == "q" ? factors.query : factors.key;
    const int64_t height = section.rows.rows() / section.heads;
    for (int64_t i = 0; i < section.rows.rows(); ++i)
      rows[index(section.rows.row(i))] =
          static_cast<float>(of[index(i / height)]);
  }
  return rows;
}

}  // namespace

RunQkClip::RunQkClip(const QkClip& clip, const DecoderConfig& decoder,
                     const Plan& plan, const Coordinates& at,
                     Communicator& world)
    : clip_(clip),
      plan_(plan),
      ranks_(&world),
      heads_(decoder.architecture.heads),
      groups_(decoder.architecture.kv_heads),
      num_layers_(plan.model.num_layers / plan.mesh.pp) {
  first_layer_ = at.stage * num_layers_;
  first_head_ = at.t * (heads_ / plan.mesh.tp);
  for (int64_t layer = 0; layer < plan.model.num_layers; ++layer) {
    const bool has_experts = decoder.architecture.experts.in_layer(layer);
    const int32_t qkv = layer_tensors(plan.model, layer, has_experts).qkv;
    tensors_.push_back(plan.model.tensors[index(qkv)].frozen ? -1 : qkv);
  }
  largest_.resize(tensors_.size() * index(heads_));
  scratch_.resize(largest_.size());
}

QkClipped RunQkClip::look(std::span<const float> own) {
  const int64_t heads_here = heads_ / plan_.mesh.tp;
  CANZONA_CHECK_EQ(std::ssize(own), num_layers_ * heads_here, "logits");
  std::ranges::fill(largest_, -std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < std::ssize(own); ++i) {
    const int64_t to =
        (first_layer_ + i / heads_here) * heads_ + first_head_ + i % heads_here;
    // Of all numbers this NaN counts as the largest.
    largest_[index(to)] = std::isnan(own[index(i)])
                              ? std::numeric_limits<float>::quiet_NaN()
                              : own[index(i)];
  }
  ranks_.largest(largest_.data(), std::ssize(largest_), scratch_.data(),
                 "largest logits of heads");
  QkClipped found;
  found.largest = *std::ranges::max_element(largest_);
  for (int64_t layer = 0; layer < std::ssize(tensors_); ++layer)
    if (tensors_[index(layer)] >= 0) add_layer(layer, found);
  return found;
}

void RunQkClip::add_layer(int64_t layer, QkClipped& found) const {
  const auto first = largest_.begin() + layer * heads_;
  const std::vector<double> largest(first, first + heads_);
  const int32_t tensor = tensors_[index(layer)];
  try {
    const QkFactors factors = qk_factors(largest, groups_, clip_);
    const int64_t clipped = std::ranges::count_if(
        factors.query_rope, [](double gamma) { return gamma < 1; });
    if (clipped == 0) return;
    found.heads += clipped;
    found.rows.push_back(
        {tensor, rows_of(plan_.model.tensors[index(tensor)], factors)});
  } catch (const NumericalError& error) {
    if (found.fault.empty())
      found.fault = cat("QK-clip: layer ", layer, ": ", error.what());
  }
}

}  // namespace canzona::train
