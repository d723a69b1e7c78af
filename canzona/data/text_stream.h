// Makes text safe for a terminal when it arrives in pieces that may end inside
// a character: only whole characters are returned.
//
//   TextStream stream;
//   std::string shown = stream.add("\xC3");   // ""
//   shown = stream.add("\xA9");               // "é"
//   shown = stream.finish();                  // what was left incomplete
//
// Bytes that are not UTF-8, and control characters other than newline and tab,
// become U+FFFD. One thread at a time.
#pragma once

#include <string>
#include <string_view>

namespace canzona {

class TextStream {
 public:
  std::string add(std::string_view bytes);
  std::string finish();

 private:
  std::string take(bool all);

  std::string waiting_;
};

}  // namespace canzona
