#include "canzona/data/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <queue>
#include <unordered_map>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/data/tokenizer_file.h"
#include "canzona/data/unicode.h"

namespace canzona::data {
namespace {

// One character; bytes that are not UTF-8 are `kOther`.
struct ScannedChar {
  size_t length = 1;
  UnicodeClass kind = UnicodeClass::kOther;
  char ascii = 0;  // 0: it is none

  bool is_newline() const { return ascii == '\n' || ascii == '\r'; }
  bool is_letter() const { return kind == UnicodeClass::kLetter; }
};

// Splits a text into words: the successive matches of this regular expression,
// with D = 1 (Qwen 2 and 3) or 3 (Llama 3).
//
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,D}
//   | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
class WordScanner {
 public:
  WordScanner(std::string_view text, int max_digits)
      : text_(text), max_digits_(max_digits) {}

  // Returns "" at the end.
  std::string_view next() {
    const size_t begin = at_;
    if (begin < text_.size()) at_ = end_of_word(begin);
    return text_.substr(begin, at_ - begin);
  }

 private:
  ScannedChar char_at(size_t at) const {
    if (at >= text_.size()) return {0, UnicodeClass::kOther, 0};
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return {1, unicode_class(byte), text_[at]};
    const Utf8Char c = utf8_char(text_, at);
    return {c.length, c.valid ? unicode_class(c.code) : UnicodeClass::kOther};
  }

  // Returns the end of the characters from `at` on that `wanted` accepts, at
  // most `most`.
  template <class Wanted>
  size_t skip(size_t at, const Wanted& wanted, int64_t most = -1) const {
    for (int64_t n = 0; n != most && at < text_.size(); ++n) {
      const ScannedChar c = char_at(at);
      if (!wanted(c)) break;
      at += c.length;
    }
    return at;
  }

  size_t end_of_word(size_t begin) const {
    const ScannedChar c = char_at(begin);
    if (c.ascii == '\'')
      if (const size_t length = contraction(begin + 1))
        return begin + 1 + length;
    if (c.is_letter()) return letters(begin);
    if (c.kind == UnicodeClass::kNumber)
      return skip(
          begin,
          [](const ScannedChar& d) { return d.kind == UnicodeClass::kNumber; },
          max_digits_);
    const size_t after = begin + c.length;
    const ScannedChar next = char_at(after);
    if (!c.is_newline() && next.length > 0 && next.is_letter())
      return letters(after);
    if (c.kind == UnicodeClass::kOther) return symbols(begin);
    if (c.ascii == ' ' && next.length > 0 && next.kind == UnicodeClass::kOther)
      return symbols(after);
    return spaces(begin);
  }

  size_t letters(size_t at) const {
    return skip(at, [](const ScannedChar& c) { return c.is_letter(); });
  }
  size_t symbols(size_t at) const {
    at = skip(at, [](const ScannedChar& c) {
      return c.kind == UnicodeClass::kOther;
    });
    return skip(at, [](const ScannedChar& c) { return c.is_newline(); });
  }

  // Ends after the last newline of the white space; without one, before its
  // last character if a word follows, to which that character belongs.
  size_t spaces(size_t begin) const {
    size_t at = begin, last = begin, newline = begin;
    while (at < text_.size()) {
      const ScannedChar c = char_at(at);
      if (c.kind != UnicodeClass::kSpace) break;
      last = at;
      at += c.length;
      if (c.is_newline()) newline = at;
    }
    if (newline > begin) return newline;
    return at == text_.size() || last == begin ? at : last;
  }

  // Returns the bytes of an 's, 't, 're, 've, 'm, 'll or 'd after the
  // apostrophe, in either case; 0 if there is none. The long s counts as an s.
  size_t contraction(size_t at) const {
    const auto lower = [&](size_t i) {
      const char c = i < text_.size() ? text_[i] : '\0';
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = lower(at), second = lower(at + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 1;
    if ((first == 'r' || first == 'v') && second == 'e') return 2;
    if (first == 'l' && second == 'l') return 2;
    return text_.substr(at, 2) == "\u017F" ? 2 : 0;
  }

  std::string_view text_;
  int max_digits_;
  size_t at_ = 0;
};

// Merges the bytes of one word, lowest rank first and leftmost among equals.
class WordMerger {
 public:
  WordMerger(const TokenizerData& data, std::string_view word) : data_(data) {
    pieces_.reserve(word.size());
    for (const char c : word) {
      const auto place = static_cast<int32_t>(pieces_.size());
      pieces_.push_back({data.byte_tokens[static_cast<unsigned char>(c)],
                         place - 1, place + 1});
    }
    pieces_.back().next = -1;
  }

  void append_to(std::vector<int32_t>& tokens) {
    for (int32_t i = 0; pieces_[at(i)].next >= 0; ++i) propose(i);
    while (!queue_.empty()) {
      const Proposal best = queue_.top();
      queue_.pop();
      carry_out(best);
    }
    for (int32_t i = 0; i >= 0; i = pieces_[at(i)].next)
      tokens.push_back(pieces_[at(i)].token);
  }

 private:
  struct Piece {
    int32_t token;  // -1: merged into the previous one
    int32_t previous;
    int32_t next;
  };
  struct Proposal {
    int32_t rank;
    int32_t place;
    uint64_t pair;  // as it was when proposed
    int32_t token;
    bool operator<(const Proposal& other) const {  // the largest is taken first
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };

  static size_t at(int32_t place) { return static_cast<size_t>(place); }
  uint64_t pair_at(int32_t place) const {
    const Piece& left = pieces_[at(place)];
    return merge_key(left.token, pieces_[at(left.next)].token);
  }

  void propose(int32_t place) {
    const uint64_t pair = pair_at(place);
    const auto merge = data_.merges.find(pair);
    if (merge == data_.merges.end()) return;
    queue_.push({merge->second.rank, place, pair, merge->second.token});
  }

  void carry_out(const Proposal& proposal) {
    Piece& left = pieces_[at(proposal.place)];
    if (left.token < 0 || left.next < 0 ||
        pair_at(proposal.place) != proposal.pair)
      return;
    Piece& right = pieces_[at(left.next)];
    left.token = proposal.token;
    right.token = -1;
    left.next = right.next;
    if (left.next >= 0) {
      pieces_[at(left.next)].previous = proposal.place;
      propose(proposal.place);
    }
    if (left.previous >= 0) propose(left.previous);
  }

  const TokenizerData& data_;
  std::vector<Piece> pieces_;
  std::priority_queue<Proposal> queue_;
};

void encode_word(const TokenizerData& data, std::string_view word,
                 std::vector<int32_t>& tokens) {
  if (data.whole_words)
    if (const auto whole = data.words.find(word); whole != data.words.end()) {
      tokens.push_back(whole->second);
      return;
    }
  WordMerger(data, word).append_to(tokens);
}

// Calls `between` for text without added tokens and `found` for each added
// token.
template <class Between, class Token>
void split_at_added(const AddedTokens& added, std::string_view text,
                    const Between& between, const Token& found) {
  size_t begin = 0;
  for (size_t at = 0; !added.empty() && at < text.size();) {
    const AddedTokens::Found here = added.at(text, at);
    if (here.length == 0) {
      ++at;
      continue;
    }
    if (at > begin) between(text.substr(begin, at - begin));
    found(here.token);
    begin = at += here.length;
  }
  if (begin < text.size()) between(text.substr(begin));
}

}  // namespace

// A cache of words, as long as there is room for them.
class TokenEncoder::Words {
 public:
  const std::vector<int32_t>* find(std::string_view word) const {
    const auto known = known_.find(word);
    return known == known_.end() ? nullptr : &known->second;
  }
  void add(std::string_view word, std::span<const int32_t> tokens) {
    if (known_.size() < kMost && word.size() <= kLongest)
      known_.emplace(word, std::vector<int32_t>(tokens.begin(), tokens.end()));
  }

 private:
  static constexpr size_t kMost = 1 << 17, kLongest = 64;  // words, bytes
  std::unordered_map<std::string, std::vector<int32_t>, TextHash,
                     std::equal_to<>>
      known_;
};

TokenEncoder::TokenEncoder(const Tokenizer& tokenizer)
    : data_(tokenizer.data_), words_(std::make_unique<Words>()) {}

TokenEncoder::~TokenEncoder() = default;

void TokenEncoder::encode(std::string_view text, std::vector<int32_t>& tokens) {
  const auto token = [&](int32_t added) { tokens.push_back(added); };
  const auto words = [&](std::string_view part) {
    WordScanner scanner(part, data_->max_digits);
    for (std::string_view word = scanner.next(); !word.empty();
         word = scanner.next()) {
      if (const auto* known = words_->find(word)) {
        tokens.insert(tokens.end(), known->begin(), known->end());
        continue;
      }
      const size_t first = tokens.size();
      encode_word(*data_, word, tokens);
      words_->add(word, std::span(tokens).subspan(first));
    }
  };
  split_at_added(
      data_->raw, text,
      [&](std::string_view part) {
        const std::string normal = data_->normalizes ? to_nfc(part) : "";
        split_at_added(data_->normalized, data_->normalizes ? normal : part,
                       words, token);
      },
      token);
}

Tokenizer::Tokenizer(std::shared_ptr<const TokenizerData> data)
    : data_(std::move(data)) {}

int64_t Tokenizer::vocab() const { return std::ssize(data_->bytes); }

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  TokenEncoder(*this).encode(text, tokens);
  return tokens;
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) text += bytes_of(token);
  return text;
}

std::string_view Tokenizer::bytes_of(int32_t token) const {
  if (token < 0 || token >= vocab()) return {};
  return data_->bytes[static_cast<size_t>(token)];
}

bool Tokenizer::normalizes() const { return data_->normalizes; }

int64_t Tokenizer::encoded_bytes(std::string_view text) const {
  if (!data_->normalizes) return std::ssize(text);
  int64_t bytes = 0;
  split_at_added(
      data_->raw, text,
      [&](std::string_view part) { bytes += std::ssize(to_nfc(part)); },
      [&](int32_t token) { bytes += std::ssize(bytes_of(token)); });
  return bytes;
}

std::span<const int32_t> Tokenizer::prefix() const { return data_->prefix; }

bool Tokenizer::is_special(int32_t token) const {
  return token >= 0 && token < vocab() &&
         data_->special[static_cast<size_t>(token)];
}

// A word always ends between a newline and an ASCII character that is not a
// space, and nothing is composed across it. Only an added token may span it.
size_t Tokenizer::separable(std::string_view text, size_t least) const {
  if (data_->raw.has_inside('\n') || data_->normalized.has_inside('\n'))
    return 0;
  for (size_t at = text.size(); at-- > std::max<size_t>(least, 1);) {
    const auto next = static_cast<unsigned char>(text[at]);
    if (text[at - 1] == '\n' && next > ' ' && next < 0x7F) return at;
  }
  return 0;
}

Tokenizer parse_tokenizer(std::string_view json, const std::string& file) {
  return Tokenizer(
      std::make_shared<const TokenizerData>(read_tokenizer_json(json, file)));
}

namespace {

std::string tokenizer_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored)
             ? (std::filesystem::path(path) / "tokenizer.json").string()
             : path;
}

}  // namespace

std::string read_tokenizer_file(const std::string& path) {
  constexpr int64_t kMostBytes = 64 << 20;
  return read_file(tokenizer_file(path), kMostBytes, "the tokenizer");
}

Tokenizer load_tokenizer(const std::string& path) {
  return parse_tokenizer(read_tokenizer_file(path), tokenizer_file(path));
}

}  // namespace canzona::data
