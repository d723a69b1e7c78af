// Text that comes in pieces which may end inside a character, made fit for a
// terminal: whole characters alone are given out.
//
//   TextStream stream;
//   std::string shown = stream.add("\xC3");   // ""
//   shown = stream.add("\xA9");               // "é"
//   shown = stream.finish();                  // what was left incomplete
//
// Bytes that are no UTF-8, and control characters but newline and tab, become
// U+FFFD. One thread.
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
