// HTML as text that is safe by default: what is put into a format is escaped
// unless it says that it is markup.
//
//   Html out;
//   out.put("<td>{}</td><td>{:.2f}</td>", tensor.name, ratio);
//   out.put("<figure>{}</figure>", Markup{svg});
//   out.add("<hr>");
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace canzona {

// `text` as the content of an element or of a quoted attribute. Invalid UTF-8
// and control characters become U+FFFD.
std::string escape_html(std::string_view text);

// Text that is HTML already.
struct Markup {
  std::string_view html;
};

class Html {
  // Stands first because the signature of put() names it.
  static std::string_view safe(const Markup& markup) { return markup.html; }
  static std::string safe(std::string_view text) { return escape_html(text); }
  template <class T>
  requires std::is_arithmetic_v<T>
  static T safe(T number) { return number; }

 public:
  void add(std::string_view markup) { text_ += markup; }

  template <class... Args>
  void put(
      fmt::format_string<decltype(safe(std::declval<const Args&>()))...> format,
      const Args&... args) {
    fmt::format_to(std::back_inserter(text_), format, safe(args)...);
  }

  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// "3 tensors", "1 tensor", "2 matrices".
std::string counted(int64_t number, std::string_view thing);

}  // namespace canzona
