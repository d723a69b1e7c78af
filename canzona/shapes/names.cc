#include "canzona/shapes/names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::shapes {
namespace {

using Segments = std::vector<std::string_view>;
using P = Projection;

constexpr std::array<std::pair<std::string_view, P>, 52> kProjections = {{
    {"q_proj", P::kQ},
    {"q", P::kQ},
    {"wq", P::kQ},
    {"query", P::kQ},
    {"linear_q", P::kQ},
    {"linear_q_proj", P::kQ},
    {"k_proj", P::kK},
    {"k", P::kK},
    {"wk", P::kK},
    {"key", P::kK},
    {"v_proj", P::kV},
    {"v", P::kV},
    {"wv", P::kV},
    {"value", P::kV},
    {"qkv_proj", P::kQkv},
    {"qkv", P::kQkv},
    {"wqkv", P::kQkv},
    {"linear_qkv", P::kQkv},
    {"query_key_value", P::kQkv},
    {"o_proj", P::kO},
    {"o", P::kO},
    {"wo", P::kO},
    {"out_proj", P::kO},
    {"proj", P::kO},
    {"linear_proj", P::kO},
    {"gate_proj", P::kGate},
    {"gate", P::kGate},
    {"w1", P::kGate},
    {"up_proj", P::kUp},
    {"up", P::kUp},
    {"w3", P::kUp},
    {"gate_up_proj", P::kGateUp},
    {"gate_up", P::kGateUp},
    {"gate_and_up_proj", P::kGateUp},
    {"w13", P::kGateUp},
    {"linear_fc1", P::kFc1},
    {"fc1", P::kFc1},
    {"fc_in", P::kFc1},
    {"dense_h_to_4h", P::kFc1},
    {"down_proj", P::kDown},
    {"down", P::kDown},
    {"w2", P::kDown},
    {"linear_fc2", P::kDown},
    {"fc2", P::kDown},
    {"fc_out", P::kDown},
    {"dense_4h_to_h", P::kDown},
    {"q_b_proj", P::kLatentUp},
    {"kv_b_proj", P::kLatentUp},
    {"q_up_proj", P::kLatentUp},
    {"kv_up_proj", P::kLatentUp},
    {"linear_q_up_proj", P::kLatentUp},
    {"linear_kv_up_proj", P::kLatentUp},
}};

Segments split_name(std::string_view name) {
  Segments segments;
  while (true) {
    const size_t dot = name.find('.');
    segments.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return segments;
    name.remove_prefix(dot + 1);
  }
}

bool is_one_of(std::string_view word,
               std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool contains(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c >= '0' && c <= '9';
  });
}

bool is_experts(std::string_view segment) {
  return segment == "experts" || segment == "local_experts";
}

int32_t bounded_number(std::string_view digits, int64_t limit, const char* what,
                       const Segments& segments) {
  int64_t number = limit;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || number >= limit) {
    const std::string_view name(segments.front().data(),
                                segments.back().data() +
                                    segments.back().size() -
                                    segments.front().data());
    throw UsageError(cat("tensor ", quoted(name), ": number ",
                         printable(digits), " of its ", what, " is not below ",
                         limit));
  }
  return static_cast<int32_t>(number);
}

void read_numbers(const Segments& segments, NameFacts& facts) {
  for (size_t i = 0; i + 1 < segments.size(); ++i) {
    if (!is_number(segments[i + 1])) continue;
    if (facts.layer < 0 &&
        is_one_of(segments[i], {"layers", "h", "blocks", "layer"})) {
      facts.layer =
          bounded_number(segments[i + 1], kMaxLayers, "layer", segments);
    } else if (is_experts(segments[i])) {
      facts.expert =
          bounded_number(segments[i + 1], kMaxExperts, "expert", segments);
    }
  }
}

// Grouped experts of Megatron: "experts.linear_fc1.weight7".
void read_grouped_expert(const Segments& segments, std::string_view number,
                         NameFacts& facts) {
  if (number.empty() || facts.expert >= 0) return;
  if (std::none_of(segments.begin(), segments.end(), is_experts)) return;
  facts.expert = bounded_number(number, kMaxExperts, "expert", segments);
}

bool is_router(const Segments& segments, std::string_view leaf,
               bool plain_leaf) {
  if (std::find(segments.begin(), segments.end(), "router") != segments.end()) {
    return true;
  }
  if (contains(leaf, "gate_weight") || leaf == "shared_expert_gate")
    return true;
  // "mlp.gate.weight" routes; the plain "mlp.gate" is the gate projection.
  return leaf == "gate" && !plain_leaf &&
         std::none_of(segments.begin(), segments.end(),
                      [](auto s) { return s.ends_with("experts"); });
}

void read_leaf(std::string_view leaf, NameFacts& facts) {
  for (const auto& [word, projection] : kProjections) {
    if (word == leaf) facts.projection = projection;
  }
  facts.megatron_qkv = leaf == "linear_qkv";
  facts.norm = contains(leaf, "norm");
  facts.head =
      is_one_of(leaf, {"lm_head", "output_layer", "embed_out", "head"}) ||
      contains(leaf, "unembed") || (leaf == "output" && facts.layer < 0);
  facts.position =
      leaf == "wpe" || contains(leaf, "position") || contains(leaf, "pos_emb");
  facts.embedding = !facts.head && (facts.position || leaf == "wte" ||
                                    contains(leaf, "embed"));
}

bool cuts_rows(Projection projection) {
  switch (projection) {
    case P::kQ:
    case P::kK:
    case P::kV:
    case P::kQkv:
    case P::kGate:
    case P::kUp:
    case P::kGateUp:
    case P::kFc1:
    case P::kLatentUp:
      return true;
    default:
      return false;
  }
}

Cut cut_of_matrix(Projection projection) {
  if (cuts_rows(projection)) return Cut::kRows;
  const bool cuts_columns = projection == P::kO || projection == P::kDown;
  return cuts_columns ? Cut::kColumns : Cut::kNone;
}

}  // namespace

NameFacts read_name(std::string_view name) {
  const Segments segments = split_name(name);
  NameFacts facts;
  read_numbers(segments, facts);
  const std::string_view last = segments.back();
  const size_t digits = last.find_last_not_of("0123456789") + 1;
  const std::string_view word = last.substr(0, digits);
  const bool is_bias = word == "bias";
  const bool plain_leaf = segments.size() < 2 || !(is_bias || word == "weight");
  const std::string_view leaf =
      plain_leaf ? last : segments[segments.size() - 2];
  facts.bias = is_bias || leaf.ends_with("bias");
  if (!plain_leaf) read_grouped_expert(segments, last.substr(digits), facts);
  read_leaf(leaf, facts);
  facts.router = is_router(segments, leaf, plain_leaf);
  if (facts.router) facts.projection = P::kOther;
  return facts;
}

Role role_of(const NameFacts& facts, size_t num_dims) {
  if (facts.bias) return Role::kBias;
  if (num_dims < 2 || facts.norm) return Role::kNorm;
  if (facts.head) return Role::kHead;
  if (facts.embedding) return Role::kEmbedding;
  return facts.router ? Role::kRouter : Role::kMatrix;
}

Cut cut_of(const NameFacts& facts, Role role, size_t num_dims) {
  if (num_dims > 2) return Cut::kNone;
  switch (role) {
    case Role::kMatrix:
      return num_dims == 2 ? cut_of_matrix(facts.projection) : Cut::kNone;
    case Role::kEmbedding:
      return facts.position ? Cut::kNone : Cut::kRows;
    case Role::kHead:
      return Cut::kRows;
    case Role::kBias:
      return num_dims == 1 && (facts.head || cuts_rows(facts.projection))
                 ? Cut::kRows
                 : Cut::kNone;
    case Role::kRouter:
    case Role::kNorm:
      return Cut::kNone;
  }
  return Cut::kNone;
}

bool is_unplaced(const Tensor& tensor) {
  if (tensor.role != Role::kMatrix || tensor.cut != Cut::kNone) return false;
  if (tensor.name.starts_with("visual.")) return false;  // whole by design
  for (const std::string_view whole :
       {"q_a_proj", "kv_a_proj", "q_down_proj", "kv_down_proj", "c_attn",
        "conv1d", "indexer"})
    if (contains(tensor.name, whole)) return false;
  return tensor.layer < 0 ||
         read_name(tensor.name).projection == Projection::kOther;
}

size_t expert_number_place(std::string_view name) {
  size_t place = std::string_view::npos;
  size_t begin = 0;
  for (std::string_view segment : split_name(name)) {
    const size_t end = begin + segment.size();
    if (place == begin - 1 && is_number(segment)) return std::string_view::npos;
    if (is_experts(segment)) place = end;
    begin = end + 1;
  }
  return place;
}

bool is_buffer(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  if (name.ends_with(".attn.bias")) return true;  // GPT-2's causal mask
  return is_one_of(last, {"inv_freq", "e_score_correction_bias", "expert_bias",
                          "weight_scale_inv", "weight_scale", "input_scale",
                          "position_ids", "masked_bias", "_extra_state"});
}

namespace {

bool is_wrapper(std::string_view component) {
  return is_one_of(component, {"module", "_orig_mod", "_fsdp_wrapped_module",
                               "_checkpoint_wrapped_module"});
}

[[noreturn]] void refuse_both_names(const std::string& file,
                                    const std::string& first,
                                    const std::string& second,
                                    const std::string& plain) {
  throw UsageError(
      cat(printable(file), ": tensors ", quoted(first), " and ", quoted(second),
          " are both ", quoted(plain),
          " without the prefixes of PyTorch's wrappers; remove one of them"));
}

}  // namespace

// The last component is the tensor's own.
std::string unwrapped_name(std::string_view name) {
  std::string plain;
  size_t begin = 0;
  for (size_t dot = name.find('.'); dot != std::string_view::npos;
       begin = dot + 1, dot = name.find('.', begin))
    if (!is_wrapper(name.substr(begin, dot - begin)))
      plain += name.substr(begin, dot + 1 - begin);
  plain += name.substr(begin);
  return plain.empty() ? std::string(name) : plain;
}

void unwrap_names(std::span<std::string* const> names,
                  const std::string& file) {
  std::map<std::string, std::string> wrapped;  // by the remaining name
  for (const std::string* name : names) {
    std::string plain = unwrapped_name(*name);
    if (plain == *name) continue;
    const auto [same, is_new] = wrapped.emplace(plain, *name);
    if (!is_new) refuse_both_names(file, same->second, *name, plain);
  }
  if (wrapped.empty()) return;
  for (const std::string* name : names)
    if (const auto same = wrapped.find(*name); same != wrapped.end())
      refuse_both_names(file, *name, same->second, *name);
  for (std::string* name : names) *name = unwrapped_name(*name);
}

namespace {

// Combines group and layer in one number.
int64_t place_of(const Tensor& tensor) {
  constexpr int64_t kEmbeddings = -1;
  if (tensor.layer >= 0) return tensor.layer;
  if (tensor.role == Role::kEmbedding) return kEmbeddings;
  return tensor.role == Role::kHead ? kMaxLayers + 1 : kMaxLayers;
}

// Returns the length of the common prefix in bytes.
size_t common_prefix(std::string_view a, std::string_view b) {
  constexpr size_t kStep = sizeof(uint64_t);
  const size_t size = std::min(a.size(), b.size());
  size_t i = 0;
  while (i + kStep <= size && std::memcmp(&a[i], &b[i], kStep) == 0) i += kStep;
  while (i < size && a[i] == b[i]) ++i;
  return i;
}

// natural_less without walking through the common prefix, which would take most
// of the time when a large model is sorted.
bool name_less(std::string_view a, std::string_view b) {
  size_t begin = common_prefix(a, b);
  while (begin > 0 && a[begin - 1] >= '0' && a[begin - 1] <= '9') --begin;
  return natural_less(a.substr(begin), b.substr(begin));
}

// Moves tensors[order[i]] to position i. In place, because a second list of a
// large model would dominate memory use.
void permute(std::vector<Tensor>& tensors, std::vector<uint32_t> order) {
  for (uint32_t start = 0; start < order.size(); ++start) {
    if (order[start] == start) continue;
    Tensor first = std::move(tensors[start]);
    uint32_t place = start;
    while (order[place] != start) {
      const uint32_t from = std::exchange(order[place], place);
      tensors[place] = std::move(tensors[from]);
      place = from;
    }
    order[place] = place;
    tensors[place] = std::move(first);
  }
}

}  // namespace

void sort_tensors(std::vector<Tensor>& tensors) {
  std::vector<int64_t> places(tensors.size());
  std::transform(tensors.begin(), tensors.end(), places.begin(), place_of);
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (places[a] != places[b]) return places[a] < places[b];
    return name_less(tensors[a].name, tensors[b].name);
  });
  permute(tensors, std::move(order));
}

}  // namespace canzona::shapes
