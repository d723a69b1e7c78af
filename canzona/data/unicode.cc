#include "canzona/data/unicode.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/data/generated/unicode_tables.inc"

namespace canzona::data {
namespace {

constexpr size_t kCodes = 0x110000;

// Hangul syllables are computed (section 3.12 of the standard).
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161,
                   kTails = 0x11A7;  // one before the first tail
constexpr char32_t kNumLeads = 19, kNumVowels = 21, kNumTails = 28;
constexpr char32_t kPerLead = kNumVowels * kNumTails;
constexpr char32_t kNumSyllables = kNumLeads * kPerLead;

struct Decomposed {
  char32_t first;
  char32_t second;
};

uint64_t pair_key(char32_t first, char32_t second) {
  return uint64_t{first} << 32 | second;
}

// The tables by code, built on first use.
struct UnicodeData {
  UnicodeData();

  std::vector<UnicodeClass> classes;
  std::vector<uint8_t> combining;
  // True for a starter that normalization neither changes nor joins to what
  // precedes it.
  std::vector<bool> plain;
  std::unordered_map<char32_t, Decomposed> decomposed;
  std::unordered_map<uint64_t, char32_t> composed;
};

UnicodeData::UnicodeData()
    : classes(kCodes), combining(kCodes), plain(kCodes, true) {
  const auto mark = [&](std::span<const CodeRange> ranges, UnicodeClass to) {
    for (const CodeRange& range : ranges)
      std::fill(classes.begin() + range.first, classes.begin() + range.last + 1,
                to);
  };
  mark(letter_ranges(), UnicodeClass::kLetter);
  mark(number_ranges(), UnicodeClass::kNumber);
  constexpr std::array<CodeRange, 10> kSpaces = {{{0x9, 0xD},
                                                  {0x20, 0x20},
                                                  {0x85, 0x85},
                                                  {0xA0, 0xA0},
                                                  {0x1680, 0x1680},
                                                  {0x2000, 0x200A},
                                                  {0x2028, 0x2029},
                                                  {0x202F, 0x202F},
                                                  {0x205F, 0x205F},
                                                  {0x3000, 0x3000}}};
  mark(kSpaces, UnicodeClass::kSpace);
  for (const ClassRange& range : combining_ranges())
    for (char32_t code = range.first; code <= range.last; ++code) {
      combining[code] = range.combining_class;
      plain[code] = false;
    }
  for (const Decomposition& row : decompositions()) {
    decomposed[row.code] = {row.first, row.second};
    if (row.composes) {
      composed[pair_key(row.first, row.second)] = row.code;
      plain[row.second] = false;
    } else {
      plain[row.code] = false;
    }
  }
  std::fill_n(plain.begin() + kVowels, kNumVowels, false);
  std::fill_n(plain.begin() + kTails + 1, kNumTails - 1, false);
}

const UnicodeData& unicode_data() {
  static const UnicodeData data;
  return data;
}

void decompose(char32_t code, std::u32string& out) {
  if (code >= kSyllables && code < kSyllables + kNumSyllables) {
    const char32_t number = code - kSyllables;
    out += kLeads + number / kPerLead;
    out += kVowels + number % kPerLead / kNumTails;
    if (number % kNumTails != 0) out += kTails + number % kNumTails;
    return;
  }
  const auto& decomposed = unicode_data().decomposed;
  const auto found = decomposed.find(code);
  if (found == decomposed.end()) {
    out += code;
    return;
  }
  decompose(found->second.first, out);
  if (found->second.second != 0) decompose(found->second.second, out);
}

std::optional<char32_t> compose(char32_t first, char32_t second) {
  if (first - kLeads < kNumLeads && second - kVowels < kNumVowels)
    return kSyllables + (first - kLeads) * kPerLead +
           (second - kVowels) * kNumTails;
  if (first - kSyllables < kNumSyllables &&
      (first - kSyllables) % kNumTails == 0 && second > kTails &&
      second < kTails + kNumTails)
    return first + (second - kTails);
  const auto& composed = unicode_data().composed;
  const auto found = composed.find(pair_key(first, second));
  if (found == composed.end()) return std::nullopt;
  return found->second;
}

// Sorts the marks after a starter by class; equal ones keep their order.
void order_marks(std::u32string& text) {
  const auto& combining = unicode_data().combining;
  for (auto at = text.begin(); at != text.end();) {
    const auto end = std::find_if(
        at, text.end(), [&](char32_t code) { return combining[code] == 0; });
    std::stable_sort(at, end, [&](char32_t a, char32_t b) {
      return combining[a] < combining[b];
    });
    at = end == text.end() ? end : end + 1;
  }
}

std::u32string compose_all(const std::u32string& text) {
  const auto& combining = unicode_data().combining;
  std::u32string out;
  std::optional<size_t> starter;
  uint8_t last = 0;  // class of the last mark after the starter; 0: none
  for (const char32_t code : text) {
    const uint8_t own = combining[code];
    const bool reaches = starter && (last == 0 || last < own);
    if (const auto joined =
            reaches ? compose(out[*starter], code) : std::nullopt) {
      out[*starter] = *joined;
      continue;
    }
    if (own == 0) starter = out.size();
    last = own;
    out += code;
  }
  return out;
}

}  // namespace

UnicodeClass unicode_class(char32_t code) {
  return unicode_data().classes[code];
}

void append_utf8(std::string& text, char32_t code) {
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80 | (code >> shift & 0x3F));
  };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

// Nothing joins a plain character to what precedes it, so text is normalized in
// segments: a plain character and the others that follow it.
std::string to_nfc(std::string_view text) {
  const UnicodeData& data = unicode_data();
  std::string out;
  out.reserve(text.size());
  size_t copied = 0;   // bytes of `text` that are in `out`
  size_t segment = 0;  // where the last plain character begins
  for (size_t at = 0; at < text.size();) {
    Utf8Char c = utf8_char(text, at);
    if (!c.valid || data.plain[c.code]) {
      segment = c.valid ? at : at + c.length;
      at += c.length;
      continue;
    }
    out += text.substr(copied, segment - copied);
    std::u32string codes;
    for (at = segment; at < text.size(); at += c.length) {
      c = utf8_char(text, at);
      if (!c.valid || (at != segment && data.plain[c.code])) break;
      decompose(c.code, codes);
    }
    order_marks(codes);
    for (const char32_t code : compose_all(codes)) append_utf8(out, code);
    copied = segment = at;
  }
  out += text.substr(copied);
  return out;
}

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

}  // namespace canzona::data
