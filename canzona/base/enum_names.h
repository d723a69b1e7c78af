// Enumerations and their names, from one table per enumeration.
//
//   constexpr EnumNames<Cut, 3> kCuts{{{Cut::kNone, "none"}, …}};
//   std::string_view name = name_of(kCuts, cut);
//   Cut cut = value_of(kCuts, "rows", "tp cut");
//
// value_of() throws UsageError, with the nearest name, for an unknown one.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

template <class Enum, size_t N>
using EnumNames = std::array<std::pair<Enum, const char*>, N>;

template <class Enum, size_t N>
std::string_view name_of(const EnumNames<Enum, N>& names, Enum value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "?";
}

template <class Enum, size_t N>
Enum value_of(const EnumNames<Enum, N>& names, std::string_view text,
              std::string_view what) {
  std::vector<std::string> words;
  for (const auto& [value, name] : names) {
    if (text == name) return value;
    words.emplace_back(name);
  }
  throw UsageError(cat(what, " ", quoted(text), ": expected ", join(words, "|"),
                       did_you_mean(text, words)));
}

}  // namespace canzona
