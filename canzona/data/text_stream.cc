#include "canzona/data/text_stream.h"

#include <utility>

#include "canzona/base/text.h"

namespace canzona {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Returns the length of the character that this byte begins; 1 if it begins
// none.
size_t announced_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte >= 0xF0 && byte < 0xF5) return 4;
  if (byte >= 0xE0) return byte < 0xF0 ? 3 : 1;
  return byte >= 0xC2 ? 2 : 1;
}

// True if the bytes to come may still complete the character at the end.
bool may_go_on(std::string_view end) {
  if (end.size() >= announced_length(end.front())) return false;
  for (const char c : end.substr(1))
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) return false;
  return true;
}

bool is_control(char32_t code) {
  return (code < 0x20 && code != '\n' && code != '\t') ||
         (code >= 0x7F && code < 0xA0);
}

}  // namespace

std::string TextStream::take(bool all) {
  std::string out;
  size_t at = 0;
  while (at < waiting_.size()) {
    const Utf8Char c = utf8_char(waiting_, at);
    if (!c.valid && !all && may_go_on(std::string_view(waiting_).substr(at)))
      break;
    if (c.valid && !is_control(c.code))
      out += waiting_.substr(at, c.length);
    else
      out += kReplacement;
    at += c.length;
  }
  waiting_.erase(0, at);
  return out;
}

std::string TextStream::add(std::string_view bytes) {
  waiting_ += bytes;
  return take(false);
}

std::string TextStream::finish() { return take(true); }

}  // namespace canzona
