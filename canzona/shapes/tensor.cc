#include "canzona/shapes/tensor.h"

#include <array>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

template <class Value>
using Word = std::pair<Value, std::string_view>;

constexpr std::array<Word<Role>, 6> kRoles = {{{Role::kMatrix, "matrix"},
                                               {Role::kEmbedding, "embedding"},
                                               {Role::kHead, "head"},
                                               {Role::kRouter, "router"},
                                               {Role::kNorm, "norm"},
                                               {Role::kBias, "bias"}}};

constexpr std::array<Word<Cut>, 3> kCuts = {
    {{Cut::kNone, "none"}, {Cut::kRows, "rows"}, {Cut::kColumns, "columns"}}};

template <class Words, class Value>
std::string_view word_of(const Words& words, Value value) {
  for (const auto& [candidate, word] : words) {
    if (candidate == value) return word;
  }
  return "unknown";
}

template <class Words>
auto value_of(const Words& words, std::string_view text, const char* what) {
  std::vector<std::string> known;
  for (const auto& [value, word] : words) {
    if (word == text) return value;
    known.emplace_back(word);
  }
  throw UsageError(cat("unknown ", what, " ", quoted(text),
                       did_you_mean(text, known), ", expected ",
                       join(known, "|")));
}

}  // namespace

std::string_view to_string(Role role) { return word_of(kRoles, role); }
std::string_view to_string(Cut cut) { return word_of(kCuts, cut); }
Role parse_role(std::string_view text) {
  return value_of(kRoles, text, "role");
}
Cut parse_cut(std::string_view text) { return value_of(kCuts, text, "tp cut"); }

}  // namespace canzona
