#include "canzona/data/synthetic.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "canzona/base/random.h"

namespace canzona {
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

}  // namespace canzona
