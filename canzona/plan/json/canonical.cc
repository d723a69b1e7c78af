#include "canzona/plan/json/canonical.h"

#include <algorithm>
#include <optional>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// True if `text` is `canonical` up to white space outside strings.
bool same_text(std::string_view text, std::string_view canonical) {
  bool in_string = false, escaped = false;
  size_t at = 0;
  for (char c : text) {
    const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (space && !in_string) continue;
    if (at == canonical.size() || canonical[at++] != c) return false;
    if (c == '"' && !escaped) in_string = !in_string;
    escaped = in_string && c == '\\' && !escaped;
  }
  return at == canonical.size();
}

// Returns the first difference of two trees as a JSON pointer; nothing if there
// is none.
std::optional<std::string> first_difference(const Json& a, const Json& b,
                                            const std::string& at = "") {
  if (a == b) return std::nullopt;
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.items())
      if (!b.contains(key) || value != b[key])
        return b.contains(key)
                   ? first_difference(value, b[key], cat(at, "/", key))
                   : cat(at, "/", key);
    for (const auto& [key, value] : b.items())
      if (!a.contains(key)) return cat(at, "/", key);
  }
  if (a.is_array() && b.is_array()) {
    const size_t both = std::min(a.size(), b.size());
    for (size_t i = 0; i < both; ++i)
      if (a[i] != b[i]) return first_difference(a[i], b[i], cat(at, "/", i));
    return cat(at, "/", both);
  }
  return at;
}

}  // namespace

void require_canonical(const Json& root, std::string_view text,
                       std::string canonical, const JsonLimits& limits) {
  canonical.pop_back();  // the end of the line
  if (same_text(text, canonical)) return;
  const auto at = first_difference(root, parse_json(canonical, limits));
  if (!at) return;
  throw UsageError(cat(limits.what, ": ", *at,
                       " is not what a plan with this digest has there; make "
                       "the plan again with `canzona plan -o`"));
}

}  // namespace canzona
