#include "canzona/sim/activations.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/schedule/modules.h"

namespace canzona::sim {
namespace {

constexpr const char* kActivationBytes = "bytes of activations";
// Logits in memory at once: 2^24, or those of 128 tokens.
constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;
constexpr int64_t kFewestHeadTokens = 128;

int64_t share_of_tp(int64_t whole, const Mesh& mesh) {
  return (whole + mesh.tp - 1) / mesh.tp;
}

int64_t product(int64_t a, int64_t b) {
  return checked_mul(a, b, kActivationBytes);
}
int64_t sum(int64_t a, int64_t b) {
  return checked_add(a, b, kActivationBytes);
}

// Elements of one token in one layer.
struct TokenElements {
  int64_t outputs = 0;         // of products that leave the stream
  int64_t expert_outputs = 0;  // the same for one expert
  int64_t product_input = 0;   // the longest input of products that return to
                               // it
  int64_t expert_input = 0;
};

// Experts of a layer are equal, so the first stands for all.
std::vector<TokenElements> count_by_layer(const Model& model,
                                          const Mesh& mesh) {
  std::vector<TokenElements> layers(static_cast<size_t>(model.num_layers));
  for (const Tensor& tensor : model.tensors) {
    const bool multiplies =
        tensor.role == Role::kMatrix || tensor.role == Role::kRouter;
    if (!multiplies || tensor.layer < 0 || tensor.expert > 0) continue;
    TokenElements& layer = layers[static_cast<size_t>(tensor.layer)];
    const bool dense = tensor.expert < 0;
    if (tensor.cut == Cut::kColumns) {
      int64_t& longest = dense ? layer.product_input : layer.expert_input;
      longest = std::max(longest, shard_cols(mesh, tensor));
    } else {
      int64_t& outputs = dense ? layer.outputs : layer.expert_outputs;
      outputs = sum(outputs, shard_rows(mesh, tensor));
    }
  }
  return layers;
}

// Returns the width of the stream between layers, even if there is no embedding
// that shows it.
int64_t stream_width(const Model& model) {
  if (const int64_t hidden = hidden_width(model); hidden > 0) return hidden;
  for (const Tensor& tensor : model.tensors)
    if (tensor.layer >= 0 && tensor.role == Role::kMatrix &&
        tensor.cut != Cut::kColumns)
      return tensor.cols();
  return 0;
}

class ActivationEstimate {
 public:
  ActivationEstimate(const Model& model, const Mesh& mesh,
                     const ActivationLoad& load)
      : model_(model),
        mesh_(mesh),
        load_(load),
        hidden_(stream_width(model)),
        width_(share_of_tp(attention_width(model), mesh)),
        layers_(count_by_layer(model, mesh)) {}

  int64_t of_stage(int32_t stage) const {
    const int64_t in_flight =
        std::min<int64_t>(mesh_.pp - stage, load_.num_micro_batches);
    const int64_t layers = model_.num_layers / mesh_.pp;
    int64_t all = 0, most = 0, scratch = 0;
    for (int64_t i = 0; i < layers; ++i) {
      const TokenElements& layer =
          layers_[static_cast<size_t>(stage * layers + i)];
      all = sum(all, kept(layer));
      most = std::max(most, kept(layer));
      scratch = std::max(scratch, scratch_of(layer));
    }
    const int64_t own = load_.recompute ? most : product(in_flight, all);
    const int64_t inputs = product(in_flight, product(layers, stream_bytes()));
    const bool is_last = stage == mesh_.pp - 1;
    return sum(product(load_.tokens, sum(sum(own, scratch), inputs)),
               is_last ? head_bytes(in_flight) : 0);
  }

 private:
  int64_t stream_bytes() const { return product(hidden_, element_bytes()); }
  int64_t element_bytes() const { return size_of(load_.dtype); }
  int64_t visits(int64_t of_expert) const {
    return product(load_.experts_per_token, of_expert);
  }

  // Returns the bytes of a token beside the layer's input.
  int64_t kept(const TokenElements& layer) const {
    const int64_t routed =
        layer.expert_outputs > 0 ? sum(layer.expert_outputs, hidden_) : 0;
    const int64_t elements =
        sum(sum(hidden_, width_), sum(layer.outputs, visits(routed)));
    const int64_t log_sums = share_of_tp(model_.query_heads, mesh_);
    return sum(product(elements, element_bytes()), log_sums * kBytesPerFp32);
  }

  // Counts the normed input, the block's output, the stream's gradient, that of
  // attention, and the gated product.
  int64_t scratch_of(const TokenElements& layer) const {
    constexpr int64_t kStreams = 3;
    const int64_t gated =
        std::max(layer.product_input, visits(layer.expert_input));
    return product(sum(kStreams * hidden_, sum(width_, gated)),
                   element_bytes());
  }

  int64_t head_bytes(int64_t in_flight) const {
    int64_t vocabulary = 0;
    for (const Tensor& tensor : model_.tensors)
      if (tensor.role == Role::kHead ||
          (tensor.role == Role::kEmbedding && is_tied(model_)))
        vocabulary = std::max(vocabulary, shard_rows(mesh_, tensor));
    if (vocabulary == 0) return 0;
    const int64_t chunk = std::min(
        load_.tokens, std::max(kFewestHeadTokens, kLogitsAtOnce / vocabulary));
    // They are kept for backward if all of them fit at once.
    const int64_t chunks = chunk == load_.tokens ? in_flight : 1;
    const int64_t logits =
        product(product(chunk, vocabulary), chunks * kBytesPerFp32);
    return sum(logits,
               product(in_flight, product(load_.tokens, stream_bytes())));
  }

  const Model& model_;
  const Mesh& mesh_;
  const ActivationLoad& load_;
  int64_t hidden_;
  int64_t width_;
  std::vector<TokenElements> layers_;
};

}  // namespace

int64_t activation_bytes(const Model& model, const Mesh& mesh,
                         const ActivationLoad& load) {
  if (load.tokens == 0) return 0;
  const ActivationEstimate estimate(model, mesh, load);
  int64_t most = 0;
  for (int32_t stage = 0; stage < mesh.pp; ++stage)
    most = std::max(most, estimate.of_stage(stage));
  return most;
}

int64_t hidden_width(const Model& model) {
  for (const Tensor& tensor : model.tensors)
    if (tensor.role == Role::kEmbedding) return tensor.cols();
  return 0;
}

int64_t attention_width(const Model& model) {
  for (const Tensor& tensor : model.tensors) {
    for (const Section& section : tensor.sections)
      if (section.name == "q") return section.rows.rows();
    if (tensor.name.find("q_proj") != std::string::npos &&
        tensor.shape.size() > 1)
      return tensor.rows();
  }
  return hidden_width(model);
}

namespace {

int64_t bytes_of_gradient(const MemoryTerms& terms) {
  return size_of(terms.gradients);
}

// Returns how many bytes every rank saves compared with the fp32 gradients that
// a plan counts.
int64_t saved_gradients(PlanRequest request, const MemoryTerms& terms) {
  if (bytes_of_gradient(terms) == kBytesPerFp32) return 0;
  request.options.memory_cap_bytes = 0;
  request.may_take = nullptr;
  int64_t least = INT64_MAX;
  for (const RankCost& rank : predict(make_plan(request)))
    least = std::min(least, rank.memory.gradients.value());
  return least - least * bytes_of_gradient(terms) / kBytesPerFp32;
}

}  // namespace

MemoryTerms memory_terms(const Model& model, const Mesh& mesh,
                         const ActivationLoad& load, DType gradients,
                         const PlanOptions& options) {
  const MemoryTerms terms{load, activation_bytes(model, mesh, load), gradients,
                          options.memory_cap_bytes};
  if (terms.cap_bytes > 0 && terms.activations >= terms.cap_bytes)
    throw UsageError(cat("memory-cap ", human_bytes(terms.cap_bytes),
                         ": activations alone take ",
                         human_bytes(terms.activations),
                         "; recompute them, use fewer tokens, or leave them "
                         "out with activations=none"));
  return terms;
}

std::vector<RankCost> predict_in_terms(const Plan& plan,
                                       const MemoryTerms& terms) {
  std::vector<RankCost> ranks = predict(plan);
  for (RankCost& rank : ranks)
    rank.memory.gradients = Bytes(rank.memory.gradients.value() *
                                  bytes_of_gradient(terms) / kBytesPerFp32);
  return ranks;
}

const RankMemory& fullest_memory(const std::vector<RankCost>& ranks) {
  return std::ranges::max_element(
             ranks, {},
             [](const RankCost& rank) { return rank.memory.total().value(); })
      ->memory;
}

Plan plan_in_terms(const PlanRequest& request, const MemoryTerms& terms) {
  const int64_t cap = request.options.memory_cap_bytes;
  if (cap == 0) return make_plan(request);
  const int64_t left =
      cap - terms.activations + saved_gradients(request, terms);
  PlanRequest own = request;
  own.options.memory_cap_bytes = left;
  Plan plan = make_plan(own);
  // The cap is kept as given, unless savings elsewhere let the plan exceed it.
  const bool holds = fullest_memory(predict(plan)).total().value() <= cap;
  plan.options.memory_cap_bytes = holds ? cap : left;
  plan.digest = digest_of(plan);
  return plan;
}

std::string describe_activations(const MemoryTerms& terms, const Mesh& mesh) {
  const ActivationLoad& load = terms.load;
  if (load.tokens == 0) return "not counted";
  const int64_t in_flight = std::min<int64_t>(mesh.pp, load.num_micro_batches);
  return cat("estimated for ", counted_text(load.tokens, "token"),
             " per micro-batch in ", to_string(load.dtype), ", ", in_flight,
             in_flight == 1 ? " micro-batch" : " micro-batches", " in flight",
             load.recompute ? ", layers recomputed" : "",
             load.experts_assumed
                 ? cat(", ", load.experts_per_token,
                       " experts per token assumed: the model does not say")
                 : "",
             "; activations=none leaves them out");
}

}  // namespace canzona::sim
