// Reads a tokenizer.json and checks it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "canzona/data/unicode.h"

namespace canzona::data {

// Names of tokens that are looked for in a text before anything else. Where
// several begin at the same position, the longest one wins.
class AddedTokens {
 public:
  struct Found {
    size_t length = 0;  // 0: none
    int32_t token = -1;
  };

  // Each content may be added only once.
  void add(std::string content, int32_t token);
  void sort();
  Found at(std::string_view text, size_t place) const;
  bool empty() const { return words_.empty(); }
  // True if one contains this byte before its end.
  bool has_inside(char byte) const;

 private:
  struct Word {
    std::string content;
    int32_t token = -1;
  };

  std::vector<Word> words_;
  std::array<bool, 256> begins_ = {};  // by first byte
};

struct Merge {
  int32_t rank = 0;
  int32_t token = 0;
};

inline uint64_t merge_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 |
         static_cast<uint32_t>(right);
}

// A hash is needed because keys differ in few bits.
struct MergeHash {
  size_t operator()(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15ULL;
    return key ^ key >> 32;
  }
};

// Allows lookup by string_view.
struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};

struct TokenizerData {
  TokenizerData() = default;
  TokenizerData(TokenizerData&&) = default;  // views stay valid
  TokenizerData(const TokenizerData&) = delete;

  std::vector<std::string> bytes;  // by token; "": no such token
  std::vector<bool> special;
  // Tokens that whole words can become, by their bytes, which are views into
  // `bytes`; empty without whole_words.
  std::unordered_map<std::string_view, int32_t> words;
  std::array<int32_t, 256> byte_tokens = {};
  std::unordered_map<uint64_t, Merge, MergeHash> merges;
  bool whole_words = false;  // ignore_merges: a word that is a token is not
                             // split
  bool normalizes = false;   // to NFC
  int max_digits = 1;        // per piece of a number
  AddedTokens raw;           // matched in the raw text
  AddedTokens normalized;    // matched in the normal form
  std::vector<int32_t> prefix;
};

// UsageError names the file, the position, what was expected and what came.
TokenizerData read_tokenizer_json(std::string_view json,
                                  const std::string& file);

}  // namespace canzona::data
