// The stored inputs of the fuzzer, and changes of their numbers: refused with a
// UsageError, or planned, validated and read back.
#include <gmock/gmock.h>

#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/plan/storage/storage_json.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::storage_corpus_test {
namespace {

using ::testing::IsEmpty;

std::vector<std::string> corpus() {
  const auto folder = std::filesystem::path(CANZONA_TEST_DATA) / ".." / ".." /
                      "fuzz" / "corpus" / "storage";
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const auto& path : paths)
    texts.push_back(read_file(path.string(), 1 << 20, "corpus"));
  return texts;
}

// True if the text was a request or a plan.
bool look_at(const std::string& text) {
  bool known = false;
  try {
    const StoragePlan plan = make_storage_plan(read_storage(text).request);
    known = true;
    EXPECT_THAT(validate(plan), IsEmpty()) << text;
    const std::string json = storage_plan_to_json(plan);
    EXPECT_EQ(storage_plan_to_json(storage_plan_from_json(json, "plan").plan),
              json);
  } catch (const UsageError&) {
  }
  try {
    const StoragePlan plan = storage_plan_from_json(text, "plan").plan;
    known = true;
    if (validate(plan).empty()) make_storage_schedule(plan, 0, 4);
  } catch (const UsageError&) {
  }
  return known;
}

TEST(StorageCorpus, IsReadOrRefused) {
  const std::vector<std::string> texts = corpus();
  EXPECT_GE(texts.size(), 6u);
  int known = 0;
  for (const std::string& text : texts) known += look_at(text) ? 1 : 0;
  EXPECT_GE(known, 5);
}

TEST(StorageCorpus, OtherNumbersAreReadOrRefused) {
  Random random(41);
  const std::vector<std::string> numbers{
      "-1", "0",     "1",          "2",       "3",   "7",
      "64", "10000", "2147483647", "1048577", "1e9", "4611686018427387904"};
  const std::vector<std::string> texts = corpus();
  int known = 0, cases = 1500;
  for (int i = 0; i < cases; ++i) {
    std::string text = random.pick(texts);
    for (int64_t changes = random.between(1, 3); changes > 0; --changes) {
      const size_t at =
          text.find_first_of("0123456789", random.next() % text.size());
      if (at == std::string::npos) continue;
      const size_t end = text.find_first_not_of("0123456789", at);
      text.replace(at, std::min(end, text.size()) - at, random.pick(numbers));
    }
    known += look_at(text) ? 1 : 0;
  }
  EXPECT_GT(known, cases / 20);
}

}  // namespace
}  // namespace canzona::plan::storage_corpus_test
