#include "canzona/data/token_source.h"

#include <gmock/gmock.h>

#include <thread>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/data/test_files.h"

namespace canzona::data::token_source_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(OpenTokens, ReadsATextFileAsBytes) {
  const TestFolder folder;
  const auto tokens = open_tokens(folder.write("a.txt", "h\xC3\xA9\n"), {});
  EXPECT_THAT(all_tokens(*tokens), ElementsAre('h', 0xC3, 0xA9, '\n'));
  std::vector<int32_t> middle(2);
  tokens->read(1, middle);
  EXPECT_THAT(middle, ElementsAre(0xC3, 0xA9));
  EXPECT_THAT(tokens->describe(), HasSubstr("text"));
}

TEST(OpenTokens, ReadsLlmcFilesOfBothWidths) {
  const TestFolder folder;
  const TokenOptions options{.vocab = 200'000};
  const auto gpt2 = open_tokens(
      folder.write("a.bin",
                   llmc_file<uint16_t>(20240520, 1, {1, 50256, 65535})),
      options);
  EXPECT_THAT(all_tokens(*gpt2), ElementsAre(1, 50256, 65535));
  const auto llama = open_tokens(
      folder.write("b", llmc_file<uint32_t>(20240801, 7, {128255, 0})),
      options);
  EXPECT_THAT(all_tokens(*llama), ElementsAre(128255, 0));
  EXPECT_THAT(llama->describe(), HasSubstr("llm.c"));
}

TEST(OpenTokens, ReadsMegatronByAnyOfItsThreeNames) {
  const TestFolder folder;
  std::string bin;
  for (uint16_t token : {5, 6, 7, 8, 9}) put(bin, token);
  folder.write("m.bin", bin);
  folder.write("m.idx", megatron_idx(8, {{2, 0}, {3, 4}}));
  for (const char* name : {"m.bin", "m.idx", "m"}) {
    const auto tokens = open_tokens(folder.path(name), {});
    EXPECT_THAT(all_tokens(*tokens), ElementsAre(5, 6, 7, 8, 9)) << name;
    EXPECT_THAT(tokens->describe(), HasSubstr("2 sequences"));
  }
}

// Sequences may be in any order, with gaps, and repeated.
TEST(OpenTokens, FollowsMegatronsPointers) {
  const TestFolder folder;
  std::string bin;
  for (int32_t token : {0, 1, 2, 3, 4, 5, 6, 7}) put(bin, token);
  folder.write("m.bin", bin);
  folder.write("m.idx",
               megatron_idx(4, {{2, 24}, {0, 0}, {1, 0}, {2, 4}, {2, 24}}));
  const auto tokens = open_tokens(folder.path("m"), {});
  EXPECT_THAT(all_tokens(*tokens), ElementsAre(6, 7, 0, 1, 2, 6, 7));
  std::vector<int32_t> middle(3);
  tokens->read(4, middle);
  EXPECT_THAT(middle, ElementsAre(2, 6, 7));
}

TEST(OpenTokens, JoinsTheFilesOfAFolderInOrder) {
  const TestFolder folder;
  folder.write("b.txt", "two");
  folder.write("a/z.txt", "one");
  folder.write("B.txt", "zero");  // upper case comes before
  folder.write("empty.txt", "");
  folder.write("picture", std::string("\x89PNG\0", 5));
  folder.write(".hidden/x", "no");
  std::filesystem::create_directory_symlink(folder.path(),
                                            folder.path("a/loop"));
  std::filesystem::create_symlink("nowhere", folder.path("dangling"));
  std::filesystem::create_symlink("b.txt", folder.path("link"));
  const auto tokens = open_tokens(folder.path(), {});
  const std::string wanted = "zero\none\ntwo\ntwo";
  EXPECT_EQ(all_tokens(*tokens), bytes_of(wanted));
  EXPECT_THAT(tokens->describe(),
              AllOf(HasSubstr("4 files"), HasSubstr("1 binary"),
                    HasSubstr("4 hidden, empty or no files")));
  for (int64_t first = 0; first < tokens->size(); ++first)
    for (int64_t count : {0, 1, 5}) {
      if (first + count > tokens->size()) continue;
      std::vector<int32_t> part(static_cast<size_t>(count));
      tokens->read(first, part);
      EXPECT_EQ(part, bytes_of(wanted.substr(static_cast<size_t>(first),
                                             static_cast<size_t>(count))));
    }
}

TEST(OpenTokens, SaysWhenAFileOfAFolderChanged) {
  const TestFolder folder;
  folder.write("a.txt", "some text");
  const auto tokens = open_tokens(folder.path(), {});
  folder.write("a.txt", "less");
  EXPECT_THAT(
      [&] { all_tokens(*tokens); },
      ThrowsMessage<DataLost>(AllOf(HasSubstr("a.txt"), HasSubstr("9 bytes"),
                                    HasSubstr("found 4"))));
  std::filesystem::remove(folder.path("a.txt"));
  EXPECT_THROW(all_tokens(*tokens), DataLost);
}

// It must not be a SIGBUS, which would end the process without a message.
TEST(OpenTokens, SaysWhenAFileWasCutShort) {
  const TestFolder folder;
  folder.write("m.idx", megatron_idx(1, {{40'000, 0}, {30'000, 40'000}}));
  folder.write("m.bin", std::string(70'000, 'm'));
  for (const std::string& path :
       {folder.write("a.txt", std::string(70'000, 'a')),
        folder.write(
            "a.bin",
            llmc_file<uint16_t>(20240520, 1, std::vector<uint16_t>(40'000, 7))),
        folder.path("m.bin")}) {
    const auto tokens = open_tokens(path, {});
    const auto before = std::filesystem::file_size(path);
    std::filesystem::resize_file(path, 5'000);
    std::vector<int32_t> some(100);
    tokens->read(0, some);
    EXPECT_THAT(
        [&] { tokens->read(tokens->size() - 100, some); },
        ThrowsMessage<DataLost>(AllOf(
            HasSubstr(path), HasSubstr("expected " + std::to_string(before)),
            HasSubstr("found 5000"))));
  }
}

TEST(OpenTokens, NamesATokenOutsideTheVocabulary) {
  const TestFolder folder;
  const std::string llmc =
      folder.write("a.bin", llmc_file<uint16_t>(20240520, 1, {1, 2, 300}));
  EXPECT_THAT([&] { open_tokens(llmc, {.vocab = 300}); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("a.bin"),
                                              HasSubstr("token 2 is 300"),
                                              HasSubstr("0 to 299"))));
  EXPECT_NO_THROW(open_tokens(llmc, {.vocab = 301}));
  std::string bin;
  for (int64_t token : {int64_t{1}, int64_t{-1}, int64_t{1} << 40})
    put(bin, token);
  folder.write("m.bin", bin);
  folder.write("m.idx", megatron_idx(5, {{1, 0}, {1, 8}}));
  EXPECT_THAT([&] { open_tokens(folder.path("m"), {}); },
              ThrowsMessage<UsageError>(HasSubstr("token 1 is -1")));
  folder.write("m.idx", megatron_idx(5, {{1, 0}, {1, 16}}));
  EXPECT_THAT([&] { open_tokens(folder.path("m"), {}); },
              ThrowsMessage<UsageError>(HasSubstr("token 1 is 1099511627776")));
  EXPECT_THAT(
      [&] { open_tokens(folder.write("t.txt", "ab\xFF"), {.vocab = 128}); },
      ThrowsMessage<UsageError>(HasSubstr("token 2 is 255")));
}

TEST(OpenTokens, RefusesWhatHoldsNoTokens) {
  const TestFolder folder;
  const auto refused = [](const std::string& path, const char* why) {
    EXPECT_THAT([&] { open_tokens(path, {}); },
                ThrowsMessage<UsageError>(HasSubstr(why)));
  };
  refused(folder.path("absent"), "No such file");
  refused(folder.write("empty.txt", ""), "found none");
  refused(folder.write("some.bin", std::string("ab\0cd", 5)), "byte 2");
  refused(folder.write("none.bin", llmc_file<uint16_t>(20240520, 1, {})),
          "found none");
  std::filesystem::create_directory(folder.path("bare"));
  refused(folder.path("bare"), "found none");
  EXPECT_THROW(open_tokens(folder.path("empty.txt"), {.vocab = 0}), UsageError);
}

TEST(OpenTokens, NamesTheSameTokensAlikeWhereverTheyLie) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += static_cast<char>('a' + i % 23);
  const auto file = open_tokens(folder.write("a.txt", text), {});
  const auto llmc = open_tokens(
      folder.write("a.bin", llmc_file<uint16_t>(20240520, 1,
                                                {text.begin(), text.end()})),
      {});
  EXPECT_EQ(file->digest(), llmc->digest());
  EXPECT_EQ(file->digest().size(), 64U);
  text[33'333] = '!';
  const auto other = open_tokens(folder.write("b.txt", text), {});
  EXPECT_NE(file->digest(), other->digest());
}

TEST(OpenTokens, CanBeReadByManyThreads) {
  const TestFolder folder;
  folder.write("d/a.txt", "some text");
  folder.write("d/b.txt", "more of it");
  const auto tokens = open_tokens(folder.path("d"), {});
  const std::vector<int32_t> wanted = all_tokens(*tokens);
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (size_t t = 0; t < right.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) right[t] += all_tokens(*tokens) == wanted;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(right, ElementsAre(50, 50, 50, 50));
}

}  // namespace
}  // namespace canzona::data::token_source_test
