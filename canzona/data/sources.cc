#include "canzona/data/token_source.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"

namespace canzona::data {
namespace {

constexpr uint64_t kWordSeed = 0x63616E7A6F6E61;  // the words are always the
                                                  // same
constexpr uint64_t kTopics = 16;
constexpr uint64_t kNounsPerTopic = 24;
constexpr uint64_t kVerbs = 40;
constexpr uint64_t kAdjectives = 32;
constexpr uint64_t kNames = 64;

// Consecutive numbers of one stream.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  // Returns 0 … n - 1; requires n < 2^32.
  uint64_t below(uint64_t n) { return (bits_at(seed_, i_++) >> 32) * n >> 32; }
  // The same, but small numbers are far more likely, like frequent words of a
  // language.
  uint64_t rare(uint64_t n) { return below(below(n) + 1); }
  bool chance(uint64_t percent) { return below(100) < percent; }

 private:
  uint64_t seed_;
  uint64_t i_ = 0;
};

using Words = std::vector<std::string>;

// Makes distinct words of one to three syllables; frequent ones are short.
Words make_words(uint64_t kind, uint64_t count, std::string_view ending) {
  constexpr std::string_view kOnsets = "bdfgklmnprstvz";
  constexpr std::string_view kVowels = "aeiou";
  Dice dice(bits_at(kWordSeed, kind));
  Words words;
  while (words.size() < count) {
    std::string word;
    const uint64_t syllables = 1 + dice.below(2) + (words.size() > 16 ? 1 : 0);
    for (uint64_t s = 0; s < syllables; ++s) {
      word += kOnsets[dice.below(kOnsets.size())];
      word += kVowels[dice.below(kVowels.size())];
    }
    if (dice.chance(40)) word += "lmnr"[dice.below(4)];
    word += ending;
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  }
  return words;
}

struct Lexicon {
  Words nouns = make_words(1, kTopics* kNounsPerTopic, "");
  Words verbs = make_words(2, kVerbs, "t");
  Words adjectives = make_words(3, kAdjectives, "ic");
  Words names = make_words(4, kNames, "");

  Lexicon() {
    for (std::string& name : names)
      name[0] = static_cast<char>(name[0] - 'a' + 'A');
  }
};

class Story {
 public:
  Story(const Lexicon& lexicon, uint64_t seed)
      : lexicon_(lexicon),
        dice_(seed),
        topic_(dice_.below(kTopics)),
        first_(dice_.below(kNames)),
        people_{
            &lexicon.names[first_],
            &lexicon.names[(first_ + 1 + dice_.below(kNames - 1)) % kNames]} {}

  std::string text() {
    const uint64_t sentences = 12 + dice_.below(17);
    for (uint64_t i = 0; i < sentences; ++i) sentence();
    text_ += '\n';
    return std::move(text_);
  }

 private:
  void sentence() {
    const uint64_t kind = dice_.below(100);
    if (kind < 62)
      statement();
    else if (kind < 74)
      repetition();
    else if (kind < 83)
      counting();
    else if (kind < 91)
      addition();
    else
      brackets(0);
    text_ += kind < 91 ? ".\n" : "\n";
  }

  const std::string& noun() {
    const uint64_t topic = dice_.chance(85) ? topic_ : dice_.below(kTopics);
    return lexicon_.nouns[topic * kNounsPerTopic + dice_.rare(kNounsPerTopic)];
  }
  const std::string& person() { return *people_[dice_.below(2)]; }

  // Writes "a small rako" or "the rakos"; returns true if it is plural.
  bool thing() {
    const bool plural = dice_.chance(40);
    text_ += plural || dice_.chance(50) ? "the " : "a ";
    if (dice_.chance(30))
      text_ += lexicon_.adjectives[dice_.rare(kAdjectives)] + " ";
    text_ += noun();
    if (plural) text_ += 's';
    return plural;
  }
  void verb(bool plural) {
    text_ += " " + lexicon_.verbs[dice_.rare(kVerbs)];
    text_ += plural ? " " : "s ";
  }
  void statement() {
    bool plural = false;
    if (dice_.chance(35))
      text_ += person();
    else
      plural = thing();
    if (dice_.chance(30)) {
      text_ += " that ";
      verb_after(thing());
    }
    verb(plural);
    thing();
  }
  // A clause ends with its verb, and the verb of the subject follows at once.
  void verb_after(bool plural) {
    text_ += " " + lexicon_.verbs[dice_.rare(kVerbs)];
    if (!plural) text_ += 's';
  }

  void repetition() {
    std::string words;
    const uint64_t count = 2 + dice_.below(4);
    for (uint64_t i = 0; i < count; ++i) words += (i == 0 ? "" : " ") + noun();
    text_ += *people_[0] + " says \"" + words + "\" and " + *people_[1] +
             " repeats \"" + words + "\"";
  }
  void counting() {
    const uint64_t first = dice_.below(90);
    text_ += person() + " counts ";
    for (uint64_t i = 0; i < 4; ++i)
      text_ += (i == 0 ? "" : ", ") + std::to_string(first + i);
  }
  void addition() {
    const uint64_t a = dice_.below(50);
    const uint64_t b = dice_.below(10);
    text_ += std::to_string(a) + " plus " + std::to_string(b) + " is " +
             std::to_string(a + b);
  }
  void brackets(uint64_t depth) {
    constexpr std::array<std::string_view, 3> kPairs = {"()", "[]", "{}"};
    const std::string_view pair = kPairs[dice_.below(kPairs.size())];
    text_ += pair[0];
    text_ += " " + noun() + " ";
    while (depth < 4 && dice_.chance(55)) {
      brackets(depth + 1);
      text_ += " ";
    }
    text_ += pair[1];
  }

  const Lexicon& lexicon_;
  Dice dice_;
  uint64_t topic_;
  uint64_t first_;  // name
  std::array<const std::string*, 2> people_;
  std::string text_;
};

}  // namespace

std::string synthetic_text(uint64_t seed, int64_t size) {
  const Lexicon lexicon;
  std::string text;
  for (uint64_t i = 0; text.size() < static_cast<size_t>(size); ++i)
    text += Story(lexicon, bits_at(seed, i)).text();
  text.resize(static_cast<size_t>(size));
  return text;
}

// Text files of a folder as one list of bytes. Files are opened when they are
// read, because a folder may have more of them than a process may map.

namespace {

constexpr int64_t kMaxEntries = 1'000'000;

struct TextFile {
  std::string path;
  int64_t size = 0;
};

struct FolderFiles {
  std::vector<TextFile> files;
  int64_t num_binary = 0;
  int64_t num_other = 0;
};

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::error_code& error) {
  throw UsageError(
      cat("cannot read the folder ", quoted(path), ": ", error.message()));
}

// Returns everything in the folder except hidden entries.
std::vector<fs::path> entries(const std::string& folder, FolderFiles& out) {
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  if (error) fail(folder, error);
  std::vector<fs::path> paths;
  while (at != fs::recursive_directory_iterator()) {
    const bool hidden = at->path().filename().native().starts_with('.');
    const bool is_folder = fs::is_directory(at->symlink_status());
    if (hidden) at.disable_recursion_pending();
    if (hidden) ++out.num_other;
    if (!hidden && !is_folder) paths.push_back(at->path());
    if (std::cmp_greater(paths.size() + 1, kMaxEntries))
      throw UsageError(cat("the folder ", quoted(folder), " has more than ",
                           kMaxEntries, " entries"));
    const std::string last = at->path().string();
    at.increment(error);
    if (error) fail(last, error);
  }
  return paths;
}

void add_file(const fs::path& path, FolderFiles& out) {
  std::error_code error;
  // A link to a folder also counts as a folder here.
  if (fs::status(path, error).type() != fs::file_type::regular) {
    ++out.num_other;
    return;
  }
  const std::string name = path.string();
  const std::string head =
      read_file_range(name, 0, static_cast<int64_t>(kLookedAt), "the text");
  if (head.empty()) {
    ++out.num_other;
  } else if (find_nul(std::as_bytes(std::span(head)))) {
    ++out.num_binary;
  } else {
    out.files.push_back({name, file_size(name, "the text")});
  }
}

// Lists the text files of a folder and all its subfolders, ordered bytewise by
// path. Left out, and counted, are names that begin with a dot, files with a
// NUL (binary), empty files, dangling links, pipes and devices. Links to files
// are read; links to folders are not followed, so there can be no loops. Throws
// UsageError if a folder or file cannot be read, or there are too many.
FolderFiles list_text_files(const std::string& folder) {
  FolderFiles out;
  std::vector<fs::path> paths = entries(folder, out);
  std::ranges::sort(paths, {}, [](const fs::path& path) -> const std::string& {
    return path.native();
  });
  for (const fs::path& path : paths) add_file(path, out);
  return out;
}

// Separates two files.
constexpr char kSeparator = '\n';

// Reads bytes that were there when the folder was listed.
std::string read_again(const TextFile& file, int64_t offset, int64_t count) {
  std::string bytes;
  int64_t found = 0;
  try {
    bytes = read_file_range(file.path, offset, count, "the text");
    if (std::cmp_equal(bytes.size(), count)) return bytes;
    found = file_size(file.path, "the text");
  } catch (const UsageError& error) {
    throw DataLost(error.what());
  }
  throw DataLost(cat(quoted(file.path), ": expected ", file.size,
                     " bytes as when the run began, found ", found,
                     ": it was cut short while in use"));
}

class FolderSource : public TokenSource {
 public:
  FolderSource(const std::string& path, const TokenOptions& options)
      : folder_(list_text_files(path)), vocab_(options.vocab) {
    for (const TextFile& file : folder_.files) {
      starts_.push_back(size_);
      size_ += file.size + 1;
    }
    size_ = std::max(size_ - 1, int64_t{0});  // none after the last
  }

  int64_t size() const override { return size_; }
  void read(int64_t first, std::span<int32_t> to) const override;
  std::string describe() const override;
  std::string digest() const override { return digest_of(*this); }

 private:
  // Reads from one file including its separator; returns the number of tokens.
  size_t read_file_at(int64_t first, std::span<int32_t> to) const;

  FolderFiles folder_;
  int64_t vocab_;
  std::vector<int64_t> starts_;  // of files
  int64_t size_ = 0;
};

void FolderSource::read(int64_t first, std::span<int32_t> to) const {
  const auto count = static_cast<int64_t>(to.size());
  CANZONA_CHECK(first >= 0 && count <= size_ && first <= size_ - count,
                "tokens ", first, " + ", count, " of ", size_);
  while (!to.empty()) {
    const size_t done = read_file_at(first, to);
    to = to.subspan(done);
    first += static_cast<int64_t>(done);
  }
}

size_t FolderSource::read_file_at(int64_t first, std::span<int32_t> to) const {
  const auto after = std::ranges::upper_bound(starts_, first);
  const auto number = static_cast<size_t>(after - starts_.begin()) - 1;
  const TextFile& file = folder_.files[number];
  const int64_t offset = first - starts_[number];
  const auto wanted =
      std::min(static_cast<int64_t>(to.size()), file.size + 1 - offset);
  std::string bytes =
      read_again(file, offset, std::min(wanted, file.size - offset));
  if (wanted > file.size - offset) bytes += kSeparator;
  const PackedTokens tokens{std::as_bytes(std::span(bytes)), PackedType::kU8};
  tokens.read(0, to.first(bytes.size()), {file.path, vocab_}, offset);
  return bytes.size();
}

std::string FolderSource::describe() const {
  std::string out = cat("text, ", folder_.files.size(),
                        folder_.files.size() == 1 ? " file, " : " files, ",
                        human_count(static_cast<double>(size_)), " tokens");
  if (folder_.num_binary > 0)
    out += cat(", ", folder_.num_binary, " binary left out");
  if (folder_.num_other > 0)
    out += cat(", ", folder_.num_other, " hidden, empty or no files left out");
  return out;
}

}  // namespace

std::unique_ptr<TokenSource> open_folder(const std::string& path,
                                         const TokenOptions& options) {
  return std::make_unique<FolderSource>(path, options);
}

// A tokenized text, with all tokens in memory at four bytes each.

namespace {

constexpr int64_t kTextBlock = 1 << 20;  // bytes read at once

// Calls `use` with successive chunks whose tokens do not depend on each other,
// so that the whole text is never in memory unless it is one line.
template <class Use>
void for_each_part(const TokenSource& text, const Tokenizer& tokenizer,
                   const Use& use) {
  std::vector<int32_t> block(kTextBlock);
  std::string waiting;
  size_t searched = 0;  // bytes known to have no place to cut
  for (int64_t first = 0; first < text.size(); first += kTextBlock) {
    const auto length = std::min(kTextBlock, text.size() - first);
    const auto part = std::span(block).first(static_cast<size_t>(length));
    text.read(first, part);
    for (const int32_t byte : part) waiting += static_cast<char>(byte);
    const size_t ready = tokenizer.separable(waiting, searched);
    use(std::string_view(waiting).substr(0, ready));
    waiting.erase(0, ready);
    searched = waiting.size();
  }
  use(std::string_view(waiting));
}

std::vector<int32_t> encode_source(const TokenSource& text,
                                   const Tokenizer& tokenizer) {
  TokenEncoder encoder(tokenizer);
  std::vector<int32_t> tokens;
  for_each_part(text, tokenizer,
                [&](std::string_view part) { encoder.encode(part, tokens); });
  return tokens;
}

// Finds where a byte of the encoded text lies in the original, using pieces
// that are normalized independently. Inside a piece that normalization changes,
// positions are interpolated.
class OriginalPlaces {
 public:
  explicit OriginalPlaces(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Adds a number of encoded bytes whose position is wanted; calls must be in
  // ascending order.
  void look_for(int64_t encoded) { wanted_.push_back(encoded); }
  const std::vector<int64_t>& found() const { return found_; }

  void add_part(std::string_view part) {
    const int64_t encoded = tokenizer_.encoded_bytes(part);
    if (!is_inside(encoded)) return pass(std::ssize(part), encoded);
    const int64_t end = encoded_ + encoded;
    add_pieces(part);
    encoded_ = end;  // a piece may have ended inside an added token
  }
  // No text is left, so positions not found are at the end.
  void finish() { found_.resize(wanted_.size(), original_); }

 private:
  bool is_inside(int64_t encoded) const {
    return found_.size() < wanted_.size() &&
           wanted_[found_.size()] < encoded_ + encoded;
  }

  // Cutting before ASCII characters is safe: they do not compose with what
  // precedes them.
  void add_pieces(std::string_view part) {
    for (size_t begin = 0; begin < part.size();) {
      size_t end = begin + 1;
      while (end < part.size() && static_cast<unsigned char>(part[end]) >= 0x80)
        ++end;
      const std::string_view piece = part.substr(begin, end - begin);
      pass(std::ssize(piece), tokenizer_.encoded_bytes(piece));
      begin = end;
    }
  }

  void pass(int64_t original, int64_t encoded) {
    while (found_.size() < wanted_.size() &&
           wanted_[found_.size()] <= encoded_ + encoded) {
      const int64_t within =
          std::max<int64_t>(wanted_[found_.size()] - encoded_, 0);
      found_.push_back(original_ +
                       (encoded == 0 ? 0 : within * original / encoded));
    }
    original_ += original;
    encoded_ += encoded;
  }

  const Tokenizer& tokenizer_;
  std::vector<int64_t> wanted_, found_;
  int64_t original_ = 0;  // bytes passed
  int64_t encoded_ = 0;
};

class TokenizedSource : public TokenSource {
 public:
  TokenizedSource(std::unique_ptr<TokenSource> text, const Tokenizer& tokenizer)
      : text_(std::move(text)),
        tokenizer_(tokenizer),
        tokens_(encode_source(*text_, tokenizer)) {}

  int64_t size() const override { return std::ssize(tokens_); }
  void read(int64_t first, std::span<int32_t> to) const override {
    const auto count = static_cast<int64_t>(to.size());
    CANZONA_CHECK(first >= 0 && count <= size() && first <= size() - count,
                  "tokens ", first, " + ", count, " of ", size());
    std::copy_n(tokens_.begin() + first, count, to.begin());
  }
  int64_t text_bytes(int64_t first, int64_t count) const override {
    const int64_t before = encoded_bytes(0, first);
    const int64_t own = encoded_bytes(first, count);
    if (!tokenizer_.normalizes()) return own;
    OriginalPlaces places(tokenizer_);
    places.look_for(before);
    places.look_for(before + own);
    for_each_part(*text_, tokenizer_,
                  [&](std::string_view part) { places.add_part(part); });
    places.finish();
    return places.found()[1] - places.found()[0];
  }
  std::string describe() const override {
    return cat(text_->describe(), " (bytes), encoded as ",
               human_count(static_cast<double>(size())));
  }
  std::string digest() const override { return digest_of(*this); }

 private:
  int64_t encoded_bytes(int64_t first, int64_t count) const {
    int64_t bytes = 0;
    for (int64_t i = first; i < first + count; ++i)
      bytes +=
          std::ssize(tokenizer_.bytes_of(tokens_.at(static_cast<size_t>(i))));
    return bytes;
  }

  std::unique_ptr<TokenSource> text_;
  Tokenizer tokenizer_;
  std::vector<int32_t> tokens_;
};

}  // namespace

std::unique_ptr<TokenSource> tokenize(std::unique_ptr<TokenSource> text,
                                      const Tokenizer& tokenizer) {
  return std::make_unique<TokenizedSource>(std::move(text), tokenizer);
}

}  // namespace canzona::data
