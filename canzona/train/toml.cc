// Configurations in TOML, by toml++. no_toml.cc takes its place where the
// library is missing.

// The parser asserts what broken files can break ("[$]"), and a release build
// would take it for granted: undefined behaviour. Here it is an error instead.
#undef NDEBUG
namespace canzona {
struct BrokenToml {};
[[noreturn]] static void throw_broken_toml() { throw BrokenToml(); }
}  // namespace canzona
#define TOML_ASSERT(condition) \
  ((condition) ? void() : canzona::throw_broken_toml())
#include <toml++/toml.h>

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/train/settings.h"

namespace canzona {
namespace {

// A key of many parts becomes as many tables, one inside the other, which the
// parser leaves again by recursion.
constexpr int64_t kMaxDots = 100;

void refuse_deep_keys(std::string_view text, const std::string& file) {
  int64_t number = 1;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const auto line = text.substr(at, end - at);
    if (std::ranges::count(line, '.') > kMaxDots)
      throw UsageError(cat(file, ":", number, ": a line with more than ",
                           kMaxDots, " dots"));
    at = end + 1;
  }
}

std::string place(const toml::node& node, const std::string& file) {
  return cat(file, ":", node.source().begin.line);
}

SettingValue value_of(const toml::node& node, const std::string& key,
                      const std::string& file) {
  if (const auto* truth = node.as_boolean()) return truth->get();
  if (const auto* number = node.as_integer()) return number->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* text = node.as_string()) return text->get();
  throw UsageError(cat(key, " (", place(node, file),
                       "): expected a number, a text, true or false, found ",
                       node.is_array() ? "an array" : "a date or time"));
}

void add_table(const toml::table& table, const std::string& prefix,
               const std::string& file, Settings& out) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (const toml::table* inner = node.as_table())
      add_table(*inner, key + ".", file, out);
    else
      out.push_back({key, value_of(node, key, file), place(node, file)});
  }
}

}  // namespace

Settings toml_settings(std::string_view text, const std::string& file) {
  refuse_deep_keys(text, file);
  try {
    Settings out;
    add_table(toml::parse(text, file), "", file, out);
    return out;
  } catch (const toml::parse_error& error) {
    throw UsageError(
        cat(file, ":", error.source().begin.line, ": ", error.description()));
  } catch (const BrokenToml&) {
    throw UsageError(
        cat(file, ": not valid TOML: a table or key with an impossible name"));
  }
}

}  // namespace canzona
