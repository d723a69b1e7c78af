#include "canzona/shapes/scale.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
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
                           what, " ", width, " is no multiple of ", divisor_));
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
  // A word more is no matter, and the 50257 of GPT-2 divide by little.
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
  return a;
}

void keep_layers(Model& model, int64_t count) {
  if (count < 1 || count > model.num_layers)
    throw UsageError(cat("model ", quoted(model.name), " has ",
                         model.num_layers, " layers, cannot keep ", count));
  std::erase_if(model.tensors,
                [&](const Tensor& tensor) { return tensor.layer >= count; });
  model.num_layers = static_cast<int32_t>(count);
  const bool has_experts =
      std::any_of(model.tensors.begin(), model.tensors.end(),
                  [](const Tensor& tensor) { return tensor.expert >= 0; });
  if (!has_experts) model.num_experts = model.experts_per_token = 0;
}

}  // namespace canzona
