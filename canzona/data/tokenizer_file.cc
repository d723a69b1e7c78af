#include "canzona/data/tokenizer_file.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"

namespace canzona::data {
namespace {

constexpr int64_t kFreeTokens = 4096;  // unused numbers that are tolerated
constexpr int64_t kMostValues = 4'000'000;

constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlamaPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The characters that stand for bytes in names of tokens: printable ones stand
// for themselves, the others are mapped to U+0100 and up.
class ByteLetters {
 public:
  ByteLetters() {
    byte_of_.fill(-1);
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_plain = (byte >= '!' && byte <= '~') ||
                            (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      byte_of_[is_plain ? static_cast<char32_t>(byte) : next++] =
          static_cast<int16_t>(byte);
    }
  }

  // Returns the bytes that a name stands for; nothing if it has other
  // characters.
  std::optional<std::string> bytes_of(std::string_view name) const {
    std::string bytes;
    for (size_t at = 0; at < name.size();) {
      const Utf8Char c = utf8_char(name, at);
      if (!c.valid || c.code >= byte_of_.size() || byte_of_[c.code] < 0)
        return std::nullopt;
      bytes += static_cast<char>(byte_of_[c.code]);
      at += c.length;
    }
    return bytes;
  }

 private:
  std::array<int16_t, 256 + 68> byte_of_;
};

const ByteLetters& byte_letters() {
  static const ByteLetters letters;
  return letters;
}

// Reads one file; every message begins with its name. The model's tokens and
// merges, which are most of the file, are consumed as they are parsed. Faults
// in them are reported later, since they may result from something that makes a
// better message.
class TokenizerReader {
 public:
  TokenizerReader(std::string_view json, const std::string& file)
      : json_(json), file_(file) {}

  TokenizerData read() {
    parse();
    require_known_keys(
        root_,
        {"version", "truncation", "padding", "added_tokens", "normalizer",
         "pre_tokenizer", "post_processor", "decoder", "model"},
        file_);
    if (const std::string version = get_string(root_, "version", file_);
        version != "1.0")
      refuse("version", quoted(version), "'1.0'");
    read_normalizer();
    read_pre_tokenizer();
    read_decoder();
    read_model();
    read_added_tokens();
    read_post_processor();
    find_words();
    find_byte_tokens();
    return std::move(data_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what, std::string_view found,
                           std::string_view expected) const {
    throw UsageError(cat(printable(file_), ": ", what, " is ", found,
                         ", expected ", expected));
  }
  std::string in(std::string_view what) const { return cat(file_, ": ", what); }

  // Returns a member that may be missing, or null.
  static const Json* find(const Json& object, const char* key) {
    const auto member = object.find(key);
    return member == object.end() || member->is_null() ? nullptr : &*member;
  }

  // Requires a member to be missing, null, false, 0 or "".
  void require_off(const Json& object, const char* key, std::string_view where,
                   std::string_view what) const {
    const Json* value = find(object, key);
    if (value == nullptr || (value->is_boolean() && !value->get<bool>()) ||
        (value->is_string() && value->get<std::string>().empty()) ||
        (value->is_number() && value->get<double>() == 0))
      return;
    throw UsageError(cat(printable(file_), ": ", where, ".", key,
                         " is set: ", what,
                         " is not supported; expected byte-level BPE as "
                         "Qwen 3 and Llama 3 have it"));
  }

  std::string type_of(const Json& object, std::string_view where) const {
    return get_string(object, "type", in(where));
  }
  void require_type(const Json& object, std::string_view where,
                    std::string_view expected) const {
    if (const std::string type = type_of(object, where); type != expected)
      refuse(cat("the type of ", where), quoted(type),
             cat(quoted(expected), ", as Qwen 3 and Llama 3 have it"));
  }

  void parse();
  void take_token(std::string&& name, const Json& number);
  void take_merge(const Json& merge);
  void read_model();
  int64_t most_tokens() const;
  int32_t add_token(const Json& number, const std::string& bytes,
                    std::string_view name);
  void find_words();
  void find_byte_tokens();
  void read_vocab();
  void read_merges();
  void read_merge(const Json& merge, size_t number);
  void add_merge(std::string_view left, std::string_view right, size_t number);
  int32_t merged_part(std::string_view name, size_t number) const;
  void read_normalizer();
  void read_pre_tokenizer();
  void read_split(const Json& split);
  void read_decoder() const;
  void read_added_tokens();
  void add_added_token(const Json& entry, size_t place_in_list);
  void read_post_processor();
  void read_template(const Json& processor);
  int32_t special_token(const Json& processor, const std::string& name) const;

  std::string_view json_;
  std::string file_;
  Json root_;  // without tokens and merges
  TokenizerData data_;
  int64_t most_tokens_ = 0;
  size_t num_merges_ = 0;
  std::vector<Json> early_merges_;      // seen before the tokens
  std::exception_ptr wrong_merge_;      // the first one
  std::string odd_token_, odd_number_;  // the first with an invalid number
  std::string repeated_token_;
  // Tokens of the model by name.
  std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>> by_name_;
};

void TokenizerReader::read_model() {
  const Json& model = get_member(root_, "model", file_);
  require_type(model, "model", "BPE");
  require_off(model, "dropout", "model", "dropout");
  require_off(model, "byte_fallback", "model", "byte fallback");
  require_off(model, "unk_token", "model", "a token for what is unknown");
  require_off(model, "continuing_subword_prefix", "model", "a prefix of parts");
  require_off(model, "end_of_word_suffix", "model", "a suffix of words");
  if (find(model, "ignore_merges") != nullptr)
    data_.whole_words = get_bool(model, "ignore_merges", in("model"));
  const Json& vocab = get_member(model, "vocab", in("model"));
  if (!vocab.is_object() || by_name_.empty())
    refuse("model.vocab", "none", "an object of tokens and their numbers");
  most_tokens_ = most_tokens();
  if (!get_member(model, "merges", in("model")).is_array())
    refuse("model.merges", "no list", "a list of pairs");
  read_vocab();
  read_merges();
}

void TokenizerReader::parse() {
  const auto token = [this](std::string&& name, Json&& number) {
    take_token(std::move(name), number);
  };
  const auto merge = [this](std::string&&, Json&& pair) { take_merge(pair); };
  root_ =
      parse_json(json_, {.what = file_, .max_values = kMostValues},
                 {{{"model", "vocab"}, token}, {{"model", "merges"}, merge}});
}

void TokenizerReader::take_token(std::string&& name, const Json& number) {
  const bool is_number =
      number.is_number_unsigned() &&
      number.get<uint64_t>() <= uint64_t{std::numeric_limits<int32_t>::max()};
  if (!is_number && odd_number_.empty()) {
    odd_token_ = name;
    odd_number_ = printable(number.dump(), 80);
  }
  const bool is_new =
      by_name_
          .try_emplace(std::move(name), is_number ? number.get<int32_t>() : -1)
          .second;
  if (!is_new && repeated_token_.empty()) repeated_token_ = std::move(name);
}

void TokenizerReader::take_merge(const Json& merge) {
  if (wrong_merge_ != nullptr) return;
  if (by_name_.empty()) return early_merges_.push_back(merge);
  try {
    read_merge(merge, num_merges_++);
  } catch (const UsageError&) {
    wrong_merge_ = std::current_exception();
  }
}

void TokenizerReader::read_vocab() {
  if (!repeated_token_.empty())
    refuse("model.vocab", cat("with ", quoted(repeated_token_), " twice"),
           "every token once");
  if (!odd_number_.empty())
    refuse(cat("the number of token ", quoted(odd_token_)), odd_number_,
           cat("one from 0 to ", most_tokens_ - 1));
  data_.bytes.reserve(by_name_.size());
  for (const auto& [name, token] : by_name_) {
    const std::optional<std::string> bytes = byte_letters().bytes_of(name);
    add_token(static_cast<uint32_t>(token), bytes ? *bytes : name, name);
  }
}

// Numbers far above the count of tokens would waste memory.
int64_t TokenizerReader::most_tokens() const {
  const Json* added = find(root_, "added_tokens");
  return kFreeTokens +
         2 * static_cast<int64_t>(by_name_.size() +
                                  (added == nullptr ? 0 : added->size()));
}

int32_t TokenizerReader::add_token(const Json& number, const std::string& bytes,
                                   std::string_view name) {
  if (!number.is_number_unsigned() ||
      number.get<uint64_t>() >= static_cast<uint64_t>(most_tokens_))
    refuse(cat("the number of token ", quoted(name)),
           printable(number.dump(), 80),
           cat("one from 0 to ", most_tokens_ - 1));
  const auto token = number.get<int32_t>();
  const auto place = static_cast<size_t>(token);
  if (bytes.empty())
    refuse(cat("the name of token ", token), "empty", "some characters");
  if (place >= data_.bytes.size()) {
    data_.bytes.resize(place + 1);
    data_.special.resize(place + 1);
  }
  if (!data_.bytes[place].empty())
    throw UsageError(cat(printable(file_), ": ", quoted(name), " has number ",
                         token, ", and so has another token"));
  data_.bytes[place] = bytes;
  return token;
}

// Must be done last: adding another token invalidates views of bytes.
void TokenizerReader::find_words() {
  if (!data_.whole_words) return;
  data_.words.reserve(by_name_.size());
  for (const auto& [name, token] : by_name_)
    if (byte_letters().bytes_of(name))
      data_.words.emplace(data_.bytes[static_cast<size_t>(token)], token);
}

void TokenizerReader::find_byte_tokens() {
  data_.byte_tokens.fill(-1);
  for (const auto& [name, token] : by_name_)
    if (const auto bytes = byte_letters().bytes_of(name);
        bytes && bytes->size() == 1)
      data_.byte_tokens[static_cast<unsigned char>(bytes->front())] = token;
  const auto missing = std::ranges::find(data_.byte_tokens, -1);
  if (missing != data_.byte_tokens.end())
    throw UsageError(cat(printable(file_), ": model.vocab has no token for ",
                         "byte ", missing - data_.byte_tokens.begin(),
                         "; expected one for each of the 256 bytes"));
}

void TokenizerReader::read_merges() {
  for (const Json& merge : early_merges_) take_merge(merge);
  early_merges_.clear();
  if (wrong_merge_ != nullptr) std::rethrow_exception(wrong_merge_);
}

// Either "left right" or ["left", "right"].
void TokenizerReader::read_merge(const Json& merge, size_t number) {
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space == std::string::npos ||
        text.find(' ', space + 1) != std::string::npos)
      refuse(cat("merge ", number), quoted(text),
             "two names and a space between");
    add_merge(std::string_view(text).substr(0, space),
              std::string_view(text).substr(space + 1), number);
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    add_merge(merge[0].get_ref<const std::string&>(),
              merge[1].get_ref<const std::string&>(), number);
  } else {
    refuse(cat("merge ", number), printable(merge.dump(), 80), "two names");
  }
}

int32_t TokenizerReader::merged_part(std::string_view name,
                                     size_t number) const {
  const auto token = by_name_.find(name);
  if (token == by_name_.end())
    throw UsageError(cat(printable(file_), ": merge ", number, ": ",
                         quoted(name), " is not in model.vocab"));
  if (!byte_letters().bytes_of(name))
    throw UsageError(cat(printable(file_), ": merge ", number, ": ",
                         quoted(name),
                         " has characters that do not stand for a ",
                         "byte; expected byte-level BPE"));
  return token->second;
}

void TokenizerReader::add_merge(std::string_view left, std::string_view right,
                                size_t number) {
  const int32_t first = merged_part(left, number);
  const int32_t second = merged_part(right, number);
  const Merge merge{static_cast<int32_t>(number),
                    merged_part(cat(left, right), number)};
  if (!data_.merges.emplace(merge_key(first, second), merge).second)
    throw UsageError(cat(printable(file_), ": merge ", number, " of ",
                         quoted(left), " and ", quoted(right), " comes twice"));
}

void TokenizerReader::read_normalizer() {
  const Json* normalizer = find(root_, "normalizer");
  if (normalizer == nullptr) return;
  require_type(*normalizer, "normalizer", "NFC");
  data_.normalizes = true;
}

void TokenizerReader::read_pre_tokenizer() {
  const Json& pre = get_member(root_, "pre_tokenizer", file_);
  if (pre.is_null())
    refuse("pre_tokenizer", "null", "a Sequence of Split and ByteLevel");
  require_type(pre, "pre_tokenizer", "Sequence");
  const Json& parts = get_member(pre, "pretokenizers", in("pre_tokenizer"));
  if (!parts.is_array() || parts.size() != 2)
    refuse("pre_tokenizer.pretokenizers", printable(parts.dump(), 80),
           "Split and ByteLevel");
  read_split(parts[0]);
  require_type(parts[1], "pre_tokenizer.pretokenizers[1]", "ByteLevel");
  require_off(parts[1], "add_prefix_space", "pre_tokenizer.pretokenizers[1]",
              "a space before the text");
  const auto use_regex = parts[1].find("use_regex");
  if (use_regex == parts[1].end() || *use_regex != Json(false))
    refuse("pre_tokenizer.pretokenizers[1].use_regex", "not false",
           "false: Split has the pattern");
}

void TokenizerReader::read_split(const Json& split) {
  const std::string where = "pre_tokenizer.pretokenizers[0]";
  require_type(split, where, "Split");
  require_off(split, "invert", where, "an inverted pattern");
  if (const std::string behavior = get_string(split, "behavior", in(where));
      behavior != "Isolated")
    refuse(where + ".behavior", quoted(behavior), "'Isolated'");
  const std::string pattern = get_string(
      get_member(split, "pattern", in(where)), "Regex", in(where + ".pattern"));
  if (pattern == kQwenPattern)
    data_.max_digits = 1;
  else if (pattern == kLlamaPattern)
    data_.max_digits = 3;
  else
    refuse(where + ".pattern", quoted(pattern, 400),
           "the pattern of Qwen 2 and 3 or that of Llama 3");
}

void TokenizerReader::read_decoder() const {
  const Json* decoder = find(root_, "decoder");
  if (decoder == nullptr) refuse("decoder", "none", "ByteLevel");
  require_type(*decoder, "decoder", "ByteLevel");
}

void TokenizerReader::read_added_tokens() {
  const Json* added = find(root_, "added_tokens");
  if (added == nullptr) return;
  if (!added->is_array()) refuse("added_tokens", "no list", "a list");
  for (size_t i = 0; i < added->size(); ++i) add_added_token((*added)[i], i);
  data_.raw.sort();
  data_.normalized.sort();
}

void TokenizerReader::add_added_token(const Json& entry, size_t place_in_list) {
  const std::string where = cat("added_tokens[", place_in_list, "]");
  const Json& number = get_member(entry, "id", in(where));
  const std::string content = get_string(entry, "content", in(where));
  require_off(entry, "single_word", where, "a token that is found as a word");
  require_off(entry, "lstrip", where, "a token that takes spaces with it");
  require_off(entry, "rstrip", where, "a token that takes spaces with it");
  if (content.empty()) refuse(where + ".content", "empty", "some characters");
  // The length is bounded because each is looked for at every position of a
  // text.
  constexpr size_t kMostBytes = 512;
  if (content.size() > kMostBytes)
    refuse(where + ".content", cat(content.size(), " bytes"),
           cat("at most ", kMostBytes));
  const auto in_model = by_name_.find(content);
  const int32_t token = in_model == by_name_.end()
                            ? add_token(number, content, content)
                            : in_model->second;
  const auto place = static_cast<size_t>(token);
  if (number != Json(token))
    refuse(cat(where, ".id of ", quoted(content)), printable(number.dump(), 80),
           cat(token, " as in model.vocab"));
  if (data_.bytes[place] != content)
    refuse(cat(where, ".content"), quoted(content),
           "a text that model.vocab does not have for other bytes");
  data_.special[place] = find(entry, "special") != nullptr &&
                         get_bool(entry, "special", in(where));
  const bool normalized = find(entry, "normalized") != nullptr &&
                          get_bool(entry, "normalized", in(where));
  if (normalized && data_.normalizes)
    data_.normalized.add(to_nfc(content), token);
  else if (normalized)
    data_.normalized.add(content, token);
  else
    data_.raw.add(content, token);
}

// Only tokens that begin a text are read: other processors move offsets or
// serve pairs of texts.
void TokenizerReader::read_post_processor() {
  const Json* processor = find(root_, "post_processor");
  if (processor == nullptr) return;
  std::vector<const Json*> all = {processor};
  if (type_of(*processor, "post_processor") == "Sequence") {
    const Json& parts =
        get_member(*processor, "processors", in("post_processor"));
    if (!parts.is_array())
      refuse("post_processor.processors", "no list", "a list");
    all.clear();
    for (const Json& part : parts) all.push_back(&part);
  }
  for (const Json* part : all) {
    const std::string type = type_of(*part, "post_processor");
    if (type == "TemplateProcessing")
      read_template(*part);
    else if (type != "ByteLevel")
      refuse("the type of post_processor", quoted(type),
             "'ByteLevel' or 'TemplateProcessing', as Qwen 3 and Llama 3 "
             "have them");
  }
}

void TokenizerReader::read_template(const Json& processor) {
  const std::string where = "post_processor.single";
  const Json& single = get_member(processor, "single", in("post_processor"));
  if (!single.is_array()) refuse(where, "no list", "a list");
  for (const Json& part : single) {
    if (!part.is_object() || part.contains("Sequence")) return;
    data_.prefix.push_back(special_token(
        processor, get_string(get_member(part, "SpecialToken", in(where)), "id",
                              in(where))));
  }
}

int32_t TokenizerReader::special_token(const Json& processor,
                                       const std::string& name) const {
  const std::string where = in("post_processor.special_tokens");
  const Json& ids = get_member(
      get_member(get_member(processor, "special_tokens", in("post_processor")),
                 name.c_str(), where),
      "ids", where);
  if (!ids.is_array() || ids.size() != 1 || !ids[0].is_number_unsigned())
    refuse(cat("post_processor.special_tokens.", printable(name), ".ids"),
           printable(ids.dump(), 80), "one token");
  const auto token = ids[0].get<uint64_t>();
  if (token >= data_.bytes.size() || data_.bytes[token].empty())
    refuse(cat("post_processor.special_tokens.", printable(name), ".ids"),
           cat(token), "an existing token");
  return static_cast<int32_t>(token);
}

}  // namespace

void AddedTokens::add(std::string content, int32_t token) {
  begins_[static_cast<unsigned char>(content.front())] = true;
  words_.push_back({std::move(content), token});
}

// The first of two tokens with the same content counts.
void AddedTokens::sort() {
  std::ranges::stable_sort(words_, {}, &Word::content);
  const auto rest = std::unique(
      words_.begin(), words_.end(),
      [](const Word& a, const Word& b) { return a.content == b.content; });
  words_.erase(rest, words_.end());
}

// Narrows the words down byte by byte; among those with a common beginning, the
// shortest is first.
AddedTokens::Found AddedTokens::at(std::string_view text, size_t place) const {
  Found found;
  if (!begins_[static_cast<unsigned char>(text[place])]) return found;
  auto first = words_.begin(), last = words_.end();
  for (size_t depth = 0; place + depth < text.size(); ++depth) {
    const auto byte = static_cast<unsigned char>(text[place + depth]);
    const auto byte_of = [&](const Word& word) {
      return static_cast<unsigned char>(word.content[depth]);
    };
    first = std::partition_point(
        first, last, [&](const Word& word) { return byte_of(word) < byte; });
    last = std::partition_point(
        first, last, [&](const Word& word) { return byte_of(word) == byte; });
    if (first == last) break;
    if (first->content.size() == depth + 1) {
      found = {depth + 1, first->token};
      if (++first == last) break;
    }
  }
  return found;
}

bool AddedTokens::has_inside(char byte) const {
  return std::ranges::any_of(words_, [&](const Word& word) {
    const size_t at = word.content.find(byte);
    return at != std::string::npos && at + 1 < word.content.size();
  });
}

TokenizerData read_tokenizer_json(std::string_view json,
                                  const std::string& file) {
  return TokenizerReader(json, file).read();
}

}  // namespace canzona::data
