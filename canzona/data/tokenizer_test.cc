#include "canzona/data/tokenizer.h"

#include <gmock/gmock.h>

#include <string>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_reader.h"
#include "canzona/data/test_files.h"
#include "canzona/data/token_source.h"
#include "canzona/data/unicode.h"

namespace canzona::data::tokenizer_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string data_path(const std::string& name) {
  return std::string(CANZONA_TEST_DATA "/tokenizers/") + name;
}

std::string file_text(const std::string& name) {
  return read_file(data_path(name), 1 << 20, "a test");
}

struct GoldenRow {
  std::string text;
  std::string nfc;
  std::vector<int32_t> qwen;
  std::vector<int32_t> llama;
};

// Rows produced by the tokenizers library (make.py).
std::vector<GoldenRow> golden_rows() {
  std::vector<GoldenRow> rows;
  for (const std::string& line : split_text(file_text("golden.jsonl"), '\n')) {
    if (line.empty()) continue;
    const Json row = parse_json(line, {});
    rows.push_back({get_string(row, "text", "row"),
                    get_string(row, "nfc", "row"),
                    row["qwen"].get<std::vector<int32_t>>(),
                    row["llama"].get<std::vector<int32_t>>()});
  }
  return rows;
}

TEST(Tokenizer, EncodesAndDecodes) {
  const Tokenizer tokenizer = load_tokenizer(data_path("llama.json"));
  const std::vector<int32_t> tokens = tokenizer.encode("Hello, world!");
  EXPECT_EQ(tokenizer.decode(tokens), "Hello, world!");
  EXPECT_EQ(tokenizer.vocab(), 644);
}

TEST(Tokenizer, GivesTheTokensOfTheTokenizersLibrary) {
  const Tokenizer qwen = load_tokenizer(data_path("qwen.json"));
  const Tokenizer llama = load_tokenizer(data_path("llama.json"));
  const std::vector<GoldenRow> rows = golden_rows();
  ASSERT_GT(rows.size(), 100U);
  for (const GoldenRow& row : rows) {
    EXPECT_EQ(qwen.encode(row.text), row.qwen) << row.text;
    EXPECT_EQ(llama.encode(row.text), row.llama) << row.text;
    EXPECT_EQ(to_nfc(row.text), row.nfc);
    EXPECT_EQ(llama.decode(row.llama), row.text);
    EXPECT_EQ(qwen.decode(row.qwen), row.nfc);
  }
}

TEST(Tokenizer, AnEncoderRemembersWordsAndGivesTheSame) {
  const Tokenizer qwen = load_tokenizer(data_path("qwen.json"));
  TokenEncoder encoder(qwen);
  for (int round = 0; round < 2; ++round)
    for (const GoldenRow& row : golden_rows()) {
      std::vector<int32_t> tokens;
      encoder.encode(row.text, tokens);
      EXPECT_EQ(tokens, row.qwen) << row.text;
    }
}

TEST(Tokenizer, BrokenUtf8IsEncodedByteByByteAndComesBack) {
  for (const char* name : {"qwen.json", "llama.json"}) {
    const Tokenizer tokenizer = load_tokenizer(data_path(name));
    for (const std::string text :
         {"\xFF", "a\x80z", "\xC3", "\xE2\x82", "\xF0\x9F\x98 x\xC0\xAF",
          "\xED\xA0\x80", "the\xFFthe"}) {
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    }
    std::vector<int32_t> the = tokenizer.encode("the"), both = the;
    const std::vector<int32_t> broken = tokenizer.encode("\xFF");
    EXPECT_EQ(broken.size(), 1U);
    // It is neither a letter nor a space, so it begins the word that follows.
    EXPECT_EQ(tokenizer.encode("the\xFF").size(), the.size() + 1);
  }
}

TEST(Tokenizer, KnowsSpecialTokensAndWhatBeginsAText) {
  const Tokenizer llama = load_tokenizer(data_path("llama.json"));
  const int32_t begin = llama.encode("<|begin_of_text|>").at(0);
  EXPECT_THAT(llama.prefix(), testing::ElementsAre(begin));
  EXPECT_TRUE(llama.is_special(begin));
  EXPECT_FALSE(llama.is_special(0));
  const Tokenizer qwen = load_tokenizer(data_path("qwen.json"));
  EXPECT_TRUE(qwen.prefix().empty());
  EXPECT_FALSE(qwen.is_special(qwen.encode("<think>").at(0)));
}

TEST(Tokenizer, TokensThatThereAreNotHaveNoBytes) {
  const Tokenizer qwen = load_tokenizer(data_path("qwen.json"));
  for (const int32_t token : {-1, 646, 1 << 30}) {
    EXPECT_EQ(qwen.bytes_of(token), "");
    EXPECT_FALSE(qwen.is_special(token));
  }
}

// Wherever separable() allows a cut, the tokens are the same.
TEST(Tokenizer, PartsThatAreSeparableHaveTheTokensOfTheWhole) {
  std::string all;
  for (const GoldenRow& row : golden_rows()) all += row.text + "\nx\n";
  for (const char* name : {"qwen.json", "llama.json"}) {
    const Tokenizer tokenizer = load_tokenizer(data_path(name));
    const std::vector<int32_t> whole = tokenizer.encode(all);
    int cuts = 0;
    for (size_t end = 1; end < all.size(); end += 37) {
      const size_t cut =
          tokenizer.separable(std::string_view(all).substr(0, end));
      if (cut == 0) continue;
      ++cuts;
      std::vector<int32_t> parts = tokenizer.encode(all.substr(0, cut));
      const std::vector<int32_t> rest = tokenizer.encode(all.substr(cut));
      parts.insert(parts.end(), rest.begin(), rest.end());
      ASSERT_EQ(parts, whole) << name << " cut at " << cut;
    }
    EXPECT_GT(cuts, 50);
  }
}

// The bytes of the original, although normalization changes them: the cuts are
// known from how the text was assembled.
TEST(Tokenizer, TokensOfATextKnowItsBytesBeforeNormalization) {
  std::string all = "x";
  std::vector<size_t> cuts;
  for (const GoldenRow& row : golden_rows()) {
    if (row.text.find('\0') != std::string::npos) continue;  // not a text file
    all += "\n";
    cuts.push_back(all.size());
    all += "x" + row.text;
  }
  const TestFolder folder;
  const std::string file = folder.write("text.txt", all);
  for (const char* name : {"qwen.json", "llama.json"}) {
    const Tokenizer tokenizer = load_tokenizer(data_path(name));
    const auto tokens =
        open_tokens(file, {.vocab = 1000, .tokenizer = tokenizer});
    EXPECT_EQ(tokens->text_bytes(0, tokens->size()), std::ssize(all));
    EXPECT_EQ(tokens->text_bytes(5, 0), 0);
    int64_t before = 0;
    size_t begin = 0;
    for (const size_t cut : cuts) {
      const int64_t count =
          std::ssize(tokenizer.encode(all.substr(begin, cut - begin)));
      EXPECT_EQ(tokens->text_bytes(before, count),
                static_cast<int64_t>(cut - begin))
          << name << " " << all.substr(begin, cut - begin);
      before += count;
      begin = cut;
    }
  }
  EXPECT_EQ(open_tokens(file, {})->text_bytes(0, 1), -1);
}

// Members of an object have no order.
TEST(Tokenizer, MergesMayComeBeforeTheTokens) {
  const std::string text = file_text("qwen.json");
  Json root = parse_json(text, {});
  const Json merges = root["model"]["merges"], vocab = root["model"]["vocab"];
  root["model"].erase("merges");
  root["model"].erase("vocab");
  const std::string rest = root.dump();
  const std::string mark = "\"model\":{";
  const size_t at = rest.find(mark) + mark.size();
  const auto with = [&](const std::string& members) {
    return rest.substr(0, at) + members + "," + rest.substr(at);
  };
  const std::string first = cat("\"merges\":", merges.dump());
  const std::string second = cat("\"vocab\":", vocab.dump());
  const Tokenizer turned = parse_tokenizer(with(first + "," + second), "a");
  const Tokenizer plain = parse_tokenizer(with(second + "," + first), "b");
  for (const GoldenRow& row : golden_rows()) {
    EXPECT_EQ(turned.encode(row.text), row.qwen);
    EXPECT_EQ(plain.encode(row.text), row.qwen);
  }
  // Faults in either are reported.
  EXPECT_THAT(
      [&] { parse_tokenizer(with("\"merges\":[\"a\"]," + second), "f"); },
      ThrowsMessage<UsageError>(HasSubstr("f: merge 0 is 'a'")));
  EXPECT_THAT(
      [&] { parse_tokenizer(with(second + ",\"merges\":[\"a zzz\"]"), "f"); },
      ThrowsMessage<UsageError>(HasSubstr("f: merge 0: 'zzz' is not in")));
  EXPECT_THAT(
      [&] {
        parse_tokenizer(with("\"vocab\":{\"a\":1,\"a\":2}," + first), "f");
      },
      ThrowsMessage<UsageError>(HasSubstr("f: model.vocab is with 'a' twice")));
}

TEST(Tokenizer, NothingIsSeparableWhereANameHasANewlineInside) {
  std::string text = file_text("qwen.json");
  const std::string name = R"("content":"<think>")";
  text.replace(text.find(name), name.size(), R"("content":"a\nb")");
  const Tokenizer tokenizer = parse_tokenizer(text, "file");
  EXPECT_EQ(tokenizer.separable("a\nb\nc\nd"), 0U);
}

TEST(Tokenizer, TextIsReadInItsTokens) {
  const TestFolder folder;
  const Tokenizer qwen = load_tokenizer(data_path("qwen.json"));
  std::string text;
  while (text.size() < 2'500'000)
    text += "The quick brown fox\njumps over 1234 lazy dogs. " +
            text.substr(0, 100) + "\n\n";
  const auto tokens = open_tokens(folder.write("a.txt", text),
                                  {.vocab = 646, .tokenizer = qwen});
  EXPECT_EQ(all_tokens(*tokens), qwen.encode(text));
  EXPECT_THAT(tokens->describe(), HasSubstr("encoded as"));
  EXPECT_THAT(
      [&] {
        open_tokens(folder.path("a.txt"), {.vocab = 645, .tokenizer = qwen});
      },
      ThrowsMessage<UsageError>(
          AllOf(HasSubstr("646"), HasSubstr("645"), HasSubstr("model.vocab"))));
}

// It cannot be cut anywhere.
TEST(Tokenizer, TextOfOneLineIsReadWhole) {
  const TestFolder folder;
  const Tokenizer llama = load_tokenizer(data_path("llama.json"));
  std::string text = "\n";
  while (text.size() < 2'500'000) text += "word 1234, ";
  text += "\nend";
  const auto tokens = open_tokens(folder.write("a.txt", text),
                                  {.vocab = 700, .tokenizer = llama});
  EXPECT_EQ(all_tokens(*tokens), llama.encode(text));
}

// Files of tokens have no text.
TEST(Tokenizer, FilesOfTokensAreReadAsTheyAre) {
  const TestFolder folder;
  const Tokenizer qwen = load_tokenizer(data_path("qwen.json"));
  const auto tokens = open_tokens(
      folder.write("a.bin", llmc_file<uint16_t>(20240520, 1, {1, 2, 3})),
      {.vocab = 300, .tokenizer = qwen});
  EXPECT_THAT(all_tokens(*tokens), testing::ElementsAre(1, 2, 3));
}

TEST(LoadTokenizer, TakesAFolder) {
  const TestFolder folder;
  folder.write("tokenizer.json", file_text("qwen.json"));
  EXPECT_EQ(load_tokenizer(folder.path()).vocab(), 646);
  EXPECT_THAT([&] { load_tokenizer(folder.path("none")); },
              ThrowsMessage<UsageError>(HasSubstr("none")));
}

// A change to a good file, and what the refusal names.
struct BadFile {
  const char* name;
  const char* from;
  const char* to;
  const char* named;
};

class BadTokenizer : public testing::TestWithParam<BadFile> {};

TEST_P(BadTokenizer, IsRefusedByName) {
  std::string text = file_text("qwen.json");
  const BadFile& bad = GetParam();
  const size_t at = text.find(bad.from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string_view(bad.from).size(), bad.to);
  EXPECT_THAT([&] { parse_tokenizer(text, "the file"); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("the file"), HasSubstr(bad.named))));
}

constexpr BadFile kBadFiles[] = {
    {"Version", R"("version":"1.0")", R"("version":"2.0")", "'2.0'"},
    {"UnknownKey", R"("version")", R"("extra":1,"version")", "extra"},
    {"WordPiece", R"("type":"BPE")", R"("type":"WordPiece")", "WordPiece"},
    {"Unigram", R"("type":"BPE")", R"("type":"Unigram")", "Unigram"},
    {"WordLevel", R"("type":"BPE")", R"("type":"WordLevel")", "WordLevel"},
    {"NoModelType", R"("type":"BPE",)", "", "type"},
    {"ByteFallback", R"("byte_fallback":false)", R"("byte_fallback":true)",
     "byte_fallback"},
    {"Dropout", R"("dropout":null)", R"("dropout":0.1)", "dropout"},
    {"Unknown", R"("unk_token":null)", R"("unk_token":"<unk>")", "unk_token"},
    {"Prefix", R"("continuing_subword_prefix":null)",
     R"("continuing_subword_prefix":"##")", "continuing_subword_prefix"},
    {"Suffix", R"("end_of_word_suffix":null)", R"("end_of_word_suffix":"</w>")",
     "end_of_word_suffix"},
    {"Normalizer", R"({"type":"NFC"})", R"({"type":"NFKC"})", "NFKC"},
    {"NoPreTokenizer", R"("pre_tokenizer":{"type":"Sequence")",
     R"("pre_tokenizer":null,"padding2":{"type":"Sequence")", "padding2"},
    {"PreTokenizer", R"("pre_tokenizer":{"type":"Sequence")",
     R"("pre_tokenizer":{"type":"Metaspace")", "Metaspace"},
    {"Digits", R"({"type":"Split")", R"({"type":"Digits")", "Digits"},
    {"Pattern", R"(|\\p{N}| )", R"(|\\p{N}+| )", "pattern"},
    {"Behavior", R"("Isolated")", R"("Removed")", "Removed"},
    {"Invert", R"("invert":false)", R"("invert":true)", "invert"},
    {"PrefixSpace", R"({"type":"ByteLevel","add_prefix_space":false)",
     R"({"type":"ByteLevel","add_prefix_space":true)", "add_prefix_space"},
    {"UseRegex", R"("use_regex":false)", R"("use_regex":true)", "use_regex"},
    {"Decoder", R"("decoder":{"type":"ByteLevel")",
     R"("decoder":{"type":"Metaspace")", "Metaspace"},
    {"PostProcessor", R"("post_processor":{"type":"ByteLevel")",
     R"("post_processor":{"type":"BertProcessing")", "BertProcessing"},
    {"Lstrip", R"("lstrip":false)", R"("lstrip":true)", "lstrip"},
    {"SingleWord", R"("single_word":false)", R"("single_word":true)",
     "single_word"},
    {"AddedEmpty", R"("content":"<think>")", R"("content":"")", "content"},
    {"AddedTwice", R"("id":641)", R"("id":640)", "640"},
    {"AddedFar", R"("id":641)", R"("id":1000000)", "1000000"},
    {"AddedInModel", R"("content":"<think>")", R"("content":"a")", "'a'"},
    {"TokenTwice", R"("a":64)", R"("a":65)", "65"},
    {"TokenNegative", R"("a":64)", R"("a":-1)", "-1"},
    {"TokenText", R"("a":64)", R"("a":"64")", "64"},
    {"KeyTwice", R"("a":64)", R"("a":64,"a":64)", "twice"},
    {"ByteMissing", R"("ÿ":)", R"("zzzzzz":)", "byte 255"},
    {"MergeOfNobody", R"("merges":[)", R"("merges":[["qqqq","a"],)", "qqqq"},
    {"MergeIntoNobody", R"("merges":[)", R"("merges":[["q","q"],)", "qq"},
    {"MergeOfThree", R"("merges":[)", R"("merges":["a b c",)", "a b c"},
    {"MergeOfOne", R"("merges":[)", R"("merges":["a",)", "merge 0"},
    {"MergeNumber", R"("merges":[)", R"("merges":[1,)", "merge 0"},
};

INSTANTIATE_TEST_SUITE_P(All, BadTokenizer, testing::ValuesIn(kBadFiles),
                         [](const auto& bad) { return bad.param.name; });

TEST(BadTokenizer, MergesThatComeTwiceAreRefused) {
  std::string text = file_text("llama.json");
  const size_t at = text.find("\"merges\":[") + 10;
  const std::string first = text.substr(at, text.find(',', at) + 1 - at);
  text.insert(at, first);
  EXPECT_THAT([&] { parse_tokenizer(text, "the file"); },
              ThrowsMessage<UsageError>(HasSubstr("twice")));
}

TEST(BadTokenizer, EveryTruncationIsRefused) {
  const std::string text = file_text("qwen.json");
  for (size_t end = 0; end + 2 < text.size(); end += 101)
    EXPECT_THROW(parse_tokenizer(text.substr(0, end), "file"), UsageError);
}

}  // namespace
}  // namespace canzona::data::tokenizer_test
