#include "canzona/base/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

#include "canzona/base/check.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

template <class Number>
void append_number(std::string& text, Number number) {
  std::array<char, 32> buffer;  // the longest double has 24 characters
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  text.append(buffer.data(), static_cast<size_t>(end - buffer.data()));
}

// ASCII characters that stand for themselves.
constexpr std::array<bool, 256> plain_characters() {
  std::array<bool, 256> plain{};
  for (size_t c = 0x20; c < 0x7F; ++c) plain[c] = true;
  for (const char c : {'"', '\\', '<', '>', '&'}) {
    plain[static_cast<unsigned char>(c)] = false;
  }
  return plain;
}

constexpr std::array<bool, 256> kPlain = plain_characters();

void append_escape(std::string& text, char32_t code) {
  static constexpr char kDigits[] = "0123456789abcdef";
  text += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) {
    text += kDigits[code >> shift & 0xF];
  }
}

void append_ascii(std::string& text, char32_t code) {
  switch (code) {
    case '"':
      text += "\\\"";
      return;
    case '\\':
      text += "\\\\";
      return;
    case '\n':
      text += "\\n";
      return;
    case '\t':
      text += "\\t";
      return;
    default:
      append_escape(text, code);
  }
}

}  // namespace

JsonWriter& JsonWriter::begin_object() { return begin(true); }
JsonWriter& JsonWriter::end_object() { return end(true); }
JsonWriter& JsonWriter::begin_array() { return begin(false); }
JsonWriter& JsonWriter::end_array() { return end(false); }

JsonWriter& JsonWriter::begin(bool is_object) {
  const bool in_array = !levels_.empty() && !levels_.back().is_object;
  before_value();
  if (in_array) {
    // before_value() wrote ", "; a container begins on a new line instead.
    if (indent_ > 0 && text_.back() == ' ') text_.pop_back();
    new_line();
    levels_.back().has_containers = true;
  }
  text_ += is_object ? '{' : '[';
  levels_.push_back({.is_object = is_object});
  return *this;
}

JsonWriter& JsonWriter::end(bool is_object) {
  CANZONA_CHECK(!levels_.empty(), "end without begin");
  const Level level = levels_.back();
  CANZONA_CHECK_EQ(level.is_object, is_object, "kind of container to end");
  CANZONA_CHECK(!after_member_, "a member without a value");
  levels_.pop_back();
  if (!level.empty && (level.is_object || level.has_containers)) new_line();
  text_ += is_object ? '}' : ']';
  return *this;
}

JsonWriter& JsonWriter::member(std::string_view name) {
  CANZONA_CHECK(!levels_.empty() && levels_.back().is_object, "member ", name,
                " outside of an object");
  CANZONA_CHECK(!after_member_, "member ", name, " after a member");
  if (!levels_.back().empty) text_ += ',';
  levels_.back().empty = false;
  new_line();
  append_string(name);
  text_ += indent_ > 0 ? ": " : ":";
  after_member_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  before_value();
  append_string(text);
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  before_value();
  append_number(text_, number);
  return *this;
}

JsonWriter& JsonWriter::decimal(double number) {
  const size_t begin = text_.size();
  value(number);
  if (text_.find_first_of(".en", begin) == std::string::npos) text_ += ".0";
  return *this;
}

JsonWriter& JsonWriter::value(bool truth) {
  before_value();
  text_ += truth ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::null() {
  before_value();
  text_ += "null";
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t number) {
  before_value();
  append_number(text_, number);
  return *this;
}

JsonWriter& JsonWriter::unsigned_integer(uint64_t number) {
  before_value();
  append_number(text_, number);
  return *this;
}

// Writes the separator between this value and the previous one.
void JsonWriter::before_value() {
  if (levels_.empty()) {
    CANZONA_CHECK(text_.empty(), "a second value at the top");
    return;
  }
  Level& level = levels_.back();
  if (level.is_object) {
    CANZONA_CHECK(after_member_, "a value without its member");
    after_member_ = false;
    return;
  }
  if (!level.empty) text_ += ',';
  if (!level.empty && indent_ > 0) text_ += ' ';
  level.empty = false;
}

void JsonWriter::new_line() {
  if (indent_ <= 0) return;
  text_ += '\n';
  text_.append(levels_.size() * static_cast<size_t>(indent_), ' ');
}

void JsonWriter::append_string(std::string_view text) {
  text_ += '"';
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && kPlain[static_cast<unsigned char>(text[end])]) {
      ++end;
    }
    text_.append(text, i, end - i);
    i = end;
    if (i == text.size()) break;
    const Utf8Char c = utf8_char(text, i);
    if (!c.valid) {
      text_ += "\xEF\xBF\xBD";  // U+FFFD
    } else if (c.code < 0x80) {
      append_ascii(text_, c.code);
    } else if (c.code == 0x2028 || c.code == 0x2029) {
      append_escape(text_, c.code);
    } else {
      text_.append(text, i, c.length);
    }
    i += c.length;
  }
  text_ += '"';
}

}  // namespace canzona
