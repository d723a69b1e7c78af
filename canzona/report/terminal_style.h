// Text for a terminal: colours that can be switched off, and widths that count
// what the eye sees.
//
//   Ink ink(true);
//   std::string title = ink(Tone::kBold, "Balance");
//   std::string cell = pad_left("1.002", 8);
//
// Everything here takes and gives UTF-8 and may be called from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace canzona {

// No view is wider than this, so that it can be read in any window and pasted
// into a page.
inline constexpr size_t kPageWidth = 100;

enum class Tone { kPlain, kBold, kDim, kAccent, kGood, kFair, kPoor };

// Colours text, or leaves it alone.
class Ink {
 public:
  explicit Ink(bool colour = false) : colour_(colour) {}
  bool colour() const { return colour_; }
  std::string operator()(Tone tone, std::string_view text) const;

 private:
  bool colour_;
};

// A line of its own in bold, after an empty one.
std::string title(const Ink& ink, std::string_view text);

// Columns that `text` takes on a terminal; colour codes take none.
size_t display_width(std::string_view text);

// Fills with spaces up to `width` columns; never cuts.
std::string pad_left(std::string_view text, size_t width);
std::string pad_right(std::string_view text, size_t width);

// Leaves out the middle where `text` (without colour codes) is wider than
// `width`: both ends of a tensor's name say something.
std::string shorten(std::string_view text, size_t width);

// Breaks at spaces so that no line is wider than `width`; lines after the first
// start with `indent` spaces, which do not count.
std::string wrap(std::string_view text, size_t width, size_t indent);

}  // namespace canzona
