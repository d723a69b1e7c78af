#include "canzona/shapes/architecture.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::shapes {
namespace {

// Products of two of these stay below 2^43, sums of products far below 2^63.
constexpr int64_t kMaxHeads = int64_t{1} << 20;
constexpr int64_t kMaxHeadDim = int64_t{1} << 20;
constexpr int64_t kMaxKernel = int64_t{1} << 20;

// More than any layer has outside its experts: 10 matrices, 6 norms, 4 biases.
constexpr int64_t kTensorsOutsideExperts = 20;
// Counts a block of the vision tower: 5 matrices with biases, 2 norms.
constexpr int64_t kTensorsOfVisionBlock = 12;
constexpr int64_t kTensorsOutsideVisionBlocks = 6;
// Two embeddings, the final norm and its bias, the head.
constexpr int64_t kTensorsOutsideLayers = 5;

class Bounds {
 public:
  explicit Bounds(const std::string& name) : name_(name) {}

  void check(const char* what, int64_t value, int64_t low, int64_t high) const {
    if (value < low || value > high) {
      throw UsageError(cat("model ", quoted(name_), ": ", what,
                           " must be from ", low, " to ", high, ", got ",
                           value));
    }
  }

 private:
  const std::string& name_;
};

void check_attention(const Architecture& a, const Bounds& bounds,
                     const std::string& name) {
  bounds.check("number of heads", a.heads, 1, kMaxHeads);
  bounds.check("number of kv heads", a.kv_heads, 1, kMaxHeads);
  bounds.check("head dim", a.head_dim, 1, kMaxHeadDim);
  if (a.heads % a.kv_heads != 0) {
    throw UsageError(cat("model ", quoted(name), ": ", a.heads,
                         " heads cannot be divided into ", a.kv_heads,
                         " kv groups"));
  }
}

void check_latent(const LatentNumbers& latent, const Bounds& bounds) {
  if (latent.kv_rank == 0) return;
  bounds.check("rank of q", latent.q_rank, 0, kMaxDim);
  bounds.check("rank of kv", latent.kv_rank, 1, kMaxDim);
  bounds.check("head dim without rope", latent.nope_dim, 1, kMaxHeadDim);
  bounds.check("head dim with rope", latent.rope_dim, 1, kMaxHeadDim);
  bounds.check("head dim of v", latent.v_dim, 1, kMaxHeadDim);
}

void check_experts(const ExpertNumbers& experts, const Bounds& bounds) {
  bounds.check("number of experts", experts.count, 0, kMaxExperts);
  if (experts.count == 0) return;
  bounds.check("ffn of an expert", experts.ffn, 1, kMaxDim);
  bounds.check("number of shared experts", experts.shared, 0, kMaxExperts);
  bounds.check("first layer with experts", experts.first_layer, 0, kMaxDim);
  bounds.check("step of layers with experts", experts.every, 1, kMaxDim);
  bounds.check("ffn of the gated shared expert", experts.gated_shared_ffn, 0,
               kMaxDim);
}

void check_linear(const LinearNumbers& linear, const Bounds& bounds,
                  const std::string& name) {
  if (linear.layers.empty()) return;
  bounds.check("number of linear key heads", linear.key_heads, 1, kMaxHeads);
  bounds.check("number of linear value heads", linear.value_heads, 1,
               kMaxHeads);
  bounds.check("linear key head dim", linear.key_dim, 1, kMaxHeadDim);
  bounds.check("linear value head dim", linear.value_dim, 1, kMaxHeadDim);
  bounds.check("kernel of the convolution", linear.kernel, 1, kMaxKernel);
  if (linear.value_heads % linear.key_heads != 0) {
    throw UsageError(cat("model ", quoted(name), ": ", linear.value_heads,
                         " linear value heads cannot be divided among ",
                         linear.key_heads, " linear key heads"));
  }
}

void check_vision(const VisionNumbers& vision, const Bounds& bounds) {
  bounds.check("depth of the vision tower", vision.depth, 0, kMaxLayers);
  if (vision.depth == 0) return;
  // What a width is multiplied by stays below 2^26.
  constexpr int64_t kMaxPatch = 1 << 8;
  bounds.check("hidden size of the vision tower", vision.hidden, 1, kMaxDim);
  bounds.check("ffn of the vision tower", vision.ffn, 1, kMaxDim);
  bounds.check("channels of a patch", vision.channels, 1, kMaxPatch);
  bounds.check("frames of a patch", vision.frames, 1, kMaxPatch);
  bounds.check("side of a patch", vision.patch, 1, kMaxPatch);
  bounds.check("side of merged patches", vision.merge, 1, kMaxPatch);
}

}  // namespace

void check_architecture(const Architecture& a, const std::string& name) {
  const Bounds bounds(name);
  bounds.check("number of layers", a.layers, 1, kMaxLayers);
  bounds.check("hidden size", a.hidden, 1, kMaxDim);
  bounds.check("ffn", a.ffn, 1, kMaxDim);
  bounds.check("vocabulary", a.vocab, 1, kMaxDim);
  check_attention(a, bounds, name);
  check_latent(a.latent, bounds);
  check_experts(a.experts, bounds);
  check_linear(a.linear, bounds, name);
  check_vision(a.vision, bounds);
  if (a.body == Body::kGpt2) {
    bounds.check("number of positions", a.positions, 1, kMaxDim);
  }
}

int64_t count_tensors(const Architecture& a, const std::string& name,
                      bool fused) {
  int64_t count = kTensorsOutsideLayers + a.layers * kTensorsOutsideExperts;
  if (a.vision.depth > 0) {
    count +=
        kTensorsOutsideVisionBlocks + a.vision.depth * kTensorsOfVisionBlock;
  }
  const bool stacked = a.experts.layout == ExpertLayout::kStacked;
  const int64_t per_expert = stacked ? 4 : fused ? 2 : 3;
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    if (a.experts.in_layer(layer)) count += a.experts.count * per_expert;
  }
  if (count > kMaxTensors) {
    throw UsageError(cat("model ", quoted(name), ": ", a.layers,
                         " layers with up to ", a.experts.count,
                         " experts make more than ", kMaxTensors, " tensors"));
  }
  return count;
}

namespace {

constexpr int64_t kMostDivisor = 1 << 20;

class Divider {
 public:
  Divider(int64_t divisor, const std::string& name)
      : divisor_(divisor), name_(name) {}

  // A width of 0 stands for "none" and stays.
  void operator()(int64_t& width, const char* what) const {
    if (width % divisor_ != 0)
      throw UsageError(cat("model ", quoted(name_), " at 1/", divisor_, ": ",
                           what, " ", width, " is not a multiple of ",
                           divisor_));
    width /= divisor_;
  }

 private:
  int64_t divisor_;
  const std::string& name_;
};

}  // namespace

int64_t parse_scale(std::string_view text) {
  if (text == "1") return 1;
  if (!text.starts_with("1/"))
    throw UsageError(
        cat("scale ", quoted(text), ": expected 1/N, such as 1/8"));
  return parse_integer(text.substr(2), 1, kMostDivisor, "scale 1/N");
}

Architecture scaled_down(const Architecture& architecture, int64_t divisor,
                         const std::string& name) {
  Architecture a = architecture;
  const Divider divide(divisor, name);
  divide(a.hidden, "hidden size");
  divide(a.ffn, "ffn");
  // A slightly larger vocabulary does no harm, and the 50257 of GPT-2 has few
  // divisors.
  a.vocab = (a.vocab + divisor - 1) / divisor;
  divide(a.head_dim, "head dim");
  divide(a.experts.ffn, "ffn of an expert");
  divide(a.experts.gated_shared_ffn, "ffn of the gated shared expert");
  divide(a.latent.q_rank, "rank of q");
  divide(a.latent.kv_rank, "rank of kv");
  divide(a.latent.nope_dim, "head dim without rope");
  divide(a.latent.rope_dim, "head dim with rope");
  divide(a.latent.v_dim, "head dim of v");
  divide(a.linear.key_dim, "linear key head dim");
  divide(a.linear.value_dim, "linear value head dim");
  divide(a.vision.hidden, "hidden size of the vision tower");
  divide(a.vision.ffn, "ffn of the vision tower");
  return a;
}

void keep_layers(Model& model, int64_t count) {
  if (count < 1 || count > model.num_layers)
    throw UsageError(cat("model ", quoted(model.name), " has ",
                         counted_text(model.num_layers, "layer"),
                         ", so it cannot keep ", count));
  std::erase_if(model.tensors,
                [&](const Tensor& tensor) { return tensor.layer >= count; });
  model.num_layers = static_cast<int32_t>(count);
  const bool has_experts =
      std::any_of(model.tensors.begin(), model.tensors.end(),
                  [](const Tensor& tensor) { return tensor.expert >= 0; });
  if (!has_experts) model.num_experts = model.experts_per_token = 0;
}

}  // namespace canzona::shapes
