#include "cli/workload.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/cost/cost.h"

namespace canzona::cli {
namespace {

constexpr int64_t kUsualTokens = 4096;
// Experts per token where the model does not say.
constexpr int64_t kUsualExperts = 8;
constexpr int64_t kUsualSegment = 16 << 20;
constexpr int64_t kMost = int64_t{1} << 40;

int64_t number_or(const std::string& text, int64_t usual, const char* option,
                  int64_t least = 1) {
  return text.empty() ? usual : parse_integer(text, least, kMost, option);
}

bool knows_experts_per_token(const Model& model) {
  return model.num_experts == 0 || model.experts_per_token > 0;
}

// `allowed`: the dtypes, and further words that the option takes.
ParameterDtype read_dtype(const std::string& text, const char* option,
                          const std::vector<std::string>& allowed) {
  for (ParameterDtype known : {ParameterDtype::kBf16, ParameterDtype::kFp32})
    if (text == to_string(known)) return known;
  const std::vector<std::string> first(allowed.begin(), allowed.end() - 1);
  throw UsageError(cat(option, " ", quoted(text), ": expected ",
                       join(first, ", "), " or ", allowed.back(),
                       did_you_mean(text, allowed)));
}

}  // namespace

std::vector<ZeroSizes> read_sizes(const std::string& text, int32_t homes,
                                  const char* option) {
  if (text == "all") return all_zero_sizes(homes);
  std::vector<ZeroSizes> sizes;
  const auto add = [&](const std::string& word) {
    const ZeroSizes one = parse_zero(word, homes, option);
    check_zero(one, homes, option);
    if (std::ranges::find(sizes, one) == sizes.end()) sizes.push_back(one);
  };
  for (const std::string& part : split_text(text, ';')) {
    if (part.find('=') != std::string::npos)
      add(part);
    else
      for (const std::string& word : split_text(part, ',')) add(word);
  }
  return sizes;
}

Workload read_workload(const PlanArguments& a, const Model& model) {
  constexpr double kTera = 1e12;
  Workload work;
  ComputeLoad& load = work.compute;
  load.tokens = number_or(a.tokens, kUsualTokens, "--tokens", /*least=*/0);
  load.length =
      number_or(a.length, std::min(load.tokens, kUsualTokens), "--length");
  load.width = attention_width(model);
  load.flops_per_second =
      a.tflops.empty() ? kNominalFlopsPerSecond
                       : kTera * parse_number(a.tflops, 1e-6, 1e9, "--tflops");
  load.experts_per_token =
      knows_experts_per_token(model)
          ? model.experts_per_token
          : std::min<int64_t>(kUsualExperts, model.num_experts);
  load.recompute = a.recompute;
  work.num_micro_batches = number_or(a.micro_batches, 1, "--micro-batches");
  work.hidden = hidden_width(model);
  work.bytes_per_activation = 2;
  // Threads send small pieces; a cluster's library has latency per message.
  work.segment_bytes = kUsualSegment;
  if (!a.overlap.empty()) work.overlap = parse_overlap(a.overlap);
  return work;
}

MemoryTerms read_memory_terms(const PlanArguments& a, const Model& model,
                              const Mesh& mesh, const PlanOptions& options) {
  const Workload work = read_workload(a, model);
  const bool counted = a.activations != "none";
  ActivationLoad load{.tokens = counted ? work.compute.tokens : 0,
                      .num_micro_batches = work.num_micro_batches,
                      .experts_per_token = work.compute.experts_per_token,
                      .recompute = a.recompute,
                      .experts_assumed = !knows_experts_per_token(model)};
  if (counted && !a.activations.empty())
    load.dtype =
        read_dtype(a.activations, "--activations", {"bf16", "fp32", "none"});
  const ParameterDtype gradients =
      a.gradients.empty()
          ? ParameterDtype::kFp32
          : read_dtype(a.gradients, "--gradients", {"bf16", "fp32"});
  return memory_terms(model, mesh, load, gradients, options);
}

}  // namespace canzona::cli
