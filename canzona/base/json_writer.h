// Writes JSON as a stream: no tree in memory, members in the order written,
// numbers in the shortest form that reads back equal, so that the same values
// give the same bytes on every machine.
//
//   JsonWriter out;
//   out.begin_object().member("mesh").value("dp=2").end_object();
//   std::string text = out.take();
//
// Strings are escaped so that the text may also stand inside an HTML <script>:
// '<', '>', '&', U+2028 and U+2029 become \u escapes. Invalid UTF-8 is replaced
// by U+FFFD. One thread at a time.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace canzona {

class JsonWriter {
 public:
  // `indent` > 0 breaks lines after members of objects; arrays of plain values
  // stay on one line.
  explicit JsonWriter(int indent = 0) : indent_(indent) {}

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& member(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) {
    return value(std::string_view(text));
  }
  JsonWriter& value(double number);  // NaN and infinities become null
  // "1.0", not "1": for readers that tell the two apart.
  JsonWriter& decimal(double number);
  JsonWriter& value(bool truth);
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonWriter& value(T number) {
    if constexpr (std::unsigned_integral<T>) {
      return unsigned_integer(static_cast<uint64_t>(number));
    } else {
      return integer(static_cast<int64_t>(number));
    }
  }
  JsonWriter& null();

  // An array of plain values.
  template <class Range>
  JsonWriter& values(const Range& range) {
    begin_array();
    for (const auto& item : range) value(item);
    return end_array();
  }

  // Shorthand for member(name).value(v).
  template <class T>
  JsonWriter& field(std::string_view name, const T& v) {
    return member(name).value(v);
  }

  // Reserves memory for a text of this size; it may still grow larger.
  void reserve(size_t bytes) { text_.reserve(bytes); }
  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }

 private:
  struct Level {
    bool is_object = false;
    bool empty = true;
    bool has_containers = false;  // its closing bracket goes on a line of its
                                  // own
  };

  JsonWriter& integer(int64_t number);
  JsonWriter& unsigned_integer(uint64_t number);
  void before_value();
  JsonWriter& begin(bool is_object);
  JsonWriter& end(bool is_object);
  void new_line();
  void append_string(std::string_view text);

  int indent_;
  bool after_member_ = false;
  std::vector<Level> levels_;
  std::string text_;
};

}  // namespace canzona
