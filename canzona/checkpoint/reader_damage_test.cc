// Checkpoints damaged on disk: no damaged byte is ever used.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"
#include "canzona/checkpoint/test_sample.h"

namespace canzona::checkpoint::reader_damage_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

namespace fs = std::filesystem;

// Steps 100 and 200; 200 gets damaged.
class Damage : public FolderTest {
 protected:
  Damage() {
    CheckpointStore store(path("ckpt"), "test");
    save_sample(store, 100, 2);
    save_sample(store, 200, 2);
  }

  std::string file(const std::string& name) const {
    return "ckpt/step_00000200/" + name;
  }
  // Returns the error of loading everything; "" if there is none.
  std::string load_problem() const {
    try {
      expect_sample(open_checkpoint(path("ckpt/step_00000200")), 200);
    } catch (const DataLost& error) {
      return error.what();
    }
    return "";
  }
  std::string verify_problem() const {
    try {
      const auto problems =
          open_checkpoint(path("ckpt/step_00000200")).verify();
      return problems.empty() ? "" : problems.front();
    } catch (const DataLost& error) {
      return error.what();
    }
  }
  int64_t resumed_step() const {
    std::vector<std::string> notes;
    const CheckpointReader reader =
        newest_verified(Folder::open(path("ckpt")), 1, notes);
    EXPECT_EQ(notes.empty(), reader.manifest().step == 200);
    return reader.manifest().step;
  }
  // Changes the file in place, because a rewritten one would be flushed when it
  // is closed.
  void flip(const std::string& name, size_t at, int bit) const {
    std::fstream stream(path(name),
                        std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const int old = stream.get();
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(static_cast<char>(old ^ (1 << bit)));
    ASSERT_TRUE(stream.good());
  }
  void write(const std::string& name, const std::string& bytes) const {
    folder_.write(name, bytes);
  }
};

int64_t header_end(const std::string& shard) {
  int64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length =
        length << 8 | static_cast<unsigned char>(shard[static_cast<size_t>(i)]);
  return 8 + length;
}

TEST_F(Damage, NoneAtFirst) {
  EXPECT_EQ(load_problem(), "");
  EXPECT_EQ(verify_problem(), "");
  EXPECT_EQ(resumed_step(), 200);
}

TEST_F(Damage, C5_EveryFlippedByteOfManifestAndHeadersIsRefused) {
  for (const char* name :
       {"manifest.json", "rank_00000.safetensors", "rank_00001.safetensors"}) {
    const std::string bytes = bytes_of(file(name));
    const size_t end = std::string_view(name) == "manifest.json"
                           ? bytes.size()
                           : static_cast<size_t>(header_end(bytes));
    for (size_t i = 0; i < end; ++i) {
      flip(file(name), i, static_cast<int>(i % 8));
      ASSERT_THAT(verify_problem(), HasSubstr(name)) << "byte " << i;
      ASSERT_THAT(load_problem(), HasSubstr(name)) << "byte " << i;
      flip(file(name), i, static_cast<int>(i % 8));
    }
    flip(file(name), 20, 0);
    EXPECT_EQ(resumed_step(), 100);
    flip(file(name), 20, 0);
  }
  EXPECT_EQ(verify_problem(), "");
}

TEST_F(Damage, C5_RandomBytesOfDataAreRefusedWithFileAndTensor) {
  const std::vector<std::string> names = {
      "rank_00000.safetensors", "rank_00001.safetensors", "config.json"};
  std::set<std::string> found;
  for (uint64_t i = 0; i < 1000; ++i) {
    const std::string& name = names[bits_at(3, 3 * i) % names.size()];
    const std::string bytes = bytes_of(file(name));
    const auto begin =
        name == "config.json" ? 0 : static_cast<size_t>(header_end(bytes));
    const size_t at = begin + bits_at(3, 3 * i + 1) % (bytes.size() - begin);
    const auto bit = static_cast<int>(bits_at(3, 3 * i + 2) % 8);
    flip(file(name), at, bit);
    const std::string problem = verify_problem();
    ASSERT_THAT(problem, HasSubstr(name));
    if (name != "config.json") {
      ASSERT_THAT(problem, HasSubstr("tensor 'model/layers.0.w'"));
      ASSERT_THAT(load_problem(), HasSubstr(name));
    }
    flip(file(name), at, bit);
    found.insert(name);
  }
  EXPECT_EQ(found.size(), 3u);
}

// One rank saves the boxes of two.
TEST_F(Damage, ATensorOfSeveralBoxesIsNamedOnce) {
  {
    CheckpointStore store(path("ckpt"), "test");
    PendingCheckpoint pending = store.begin(300);
    const SampleShard first = sample_shard(300, 0, 2);
    const SampleShard second = sample_shard(300, 1, 2);
    std::vector<BoxSource> both = first.sources;
    both.insert(both.end(), second.sources.begin(), second.sources.end());
    const std::string record = write_shard(pending.folder(), {300, 0, 1}, both);
    pending.commit({record}, std::string(64, 'a'));
  }
  const std::string shard = "ckpt/step_00000300/rank_00000.safetensors";
  flip(shard, bytes_of(shard).size() - 1, 0);
  const auto problems = open_checkpoint(path("ckpt/step_00000300")).verify();
  ASSERT_THAT(problems, SizeIs(1));
  const std::string name = "tensor 'model/layers.0.w'";
  EXPECT_THAT(problems[0], HasSubstr(name));
  EXPECT_EQ(problems[0].find(name), problems[0].rfind(name));
}

TEST_F(Damage, C6_TruncationsAndAdditionsAreRefused) {
  for (const char* name :
       {"rank_00000.safetensors", "rank_00001.safetensors", "manifest.json"}) {
    const std::string bytes = bytes_of(file(name));
    const auto end = static_cast<size_t>(
        std::string_view(name) == "manifest.json" ? 50 : header_end(bytes));
    std::set<size_t> lengths = {0, 1, 7, 8, 9, end - 1, end, end + 1};
    for (size_t k = 0; k < 64; ++k) lengths.insert(bytes.size() * k / 64);
    for (size_t k = 1; k < 16; ++k) lengths.insert(bytes.size() - k);
    for (const size_t length : lengths) {
      write(file(name), bytes.substr(0, length));
      ASSERT_THAT(load_problem(), HasSubstr(name)) << length;
      ASSERT_THAT(verify_problem(), HasSubstr(name)) << length;
    }
    write(file(name), bytes + "x");
    EXPECT_THAT(load_problem(), HasSubstr(name));
    EXPECT_EQ(resumed_step(), 100);
    write(file(name), bytes);
  }
}

TEST_F(Damage, C7_MissingDoubledAndForeignShardsAreNamed) {
  const std::string own = file("rank_00001.safetensors");
  const std::string bytes = bytes_of(own);
  const auto expect_refused = [&](const std::string& name) {
    EXPECT_THAT(load_problem(), HasSubstr(name));
    EXPECT_THAT(verify_problem(), HasSubstr(name));
    EXPECT_EQ(resumed_step(), 100);
  };
  fs::remove(path(own));
  expect_refused("rank_00001.safetensors' is missing");
  write(own, bytes_of(file("rank_00000.safetensors")));
  expect_refused("rank_00001.safetensors");
  write(own, bytes_of("ckpt/step_00000100/rank_00001.safetensors"));
  expect_refused("rank_00001.safetensors");
  write(own, bytes);
  for (const char* extra : {"rank_00002.safetensors", "rank_9.safetensors"}) {
    write(file(extra), bytes);
    expect_refused(extra);
    fs::remove(path(file(extra)));
  }
  fs::rename(path(own), path("moved"));
  fs::create_symlink(path("moved"), path(own));
  expect_refused("symbolic link");
  fs::remove(path(own));
  fs::create_directory(path(own));
  expect_refused("not a regular file");
  fs::remove(path(own));
  ASSERT_EQ(::mkfifo(path(own).c_str(), 0600), 0);
  expect_refused("not a regular file");
  fs::remove(path(own));
  fs::rename(path("moved"), path(own));
  EXPECT_EQ(verify_problem(), "");
  // A manifest of another step, and none.
  const std::string manifest = bytes_of(file("manifest.json"));
  write(file("manifest.json"), bytes_of("ckpt/step_00000100/manifest.json"));
  expect_refused("step 100");
  fs::remove(path(file("manifest.json")));
  expect_refused("manifest.json' is missing");
  write(file("manifest.json"), manifest);
  fs::remove(path(file("config.json")));
  expect_refused("config.json' is missing");
}

// Two tensors of one size exchanged in the manifest, with all hashes right.
TEST_F(Damage, C8_AManifestThatContradictsTheHeadersIsRefused) {
  Manifest manifest = parse_manifest(bytes_of(file("manifest.json")), "m");
  auto& a = manifest.tensors[0];
  a.tensor.name = "model/layers.9.w";
  write(file("manifest.json"), manifest_text(manifest));
  EXPECT_THAT(verify_problem(), HasSubstr("model/layers.9.w"));
  std::string to(4, '?');
  EXPECT_THROW(open_checkpoint(path("ckpt/step_00000200"))
                   .load({{"model/layers.9.w",
                           {{0, 0}, {1, 1}},
                           std::as_writable_bytes(std::span(to))}}),
               CheckpointRefused);
}

TEST_F(Damage, C11_AFolderThatIsALinkIsNotFollowed) {
  fs::rename(path("ckpt/step_00000200"), path("elsewhere"));
  fs::create_symlink(path("elsewhere"), path("ckpt/step_00000200"));
  EXPECT_THAT(list_checkpoints(Folder::open(path("ckpt"))), SizeIs(1));
  std::vector<std::string> notes;
  EXPECT_EQ(
      newest_verified(Folder::open(path("ckpt")), 1, notes).manifest().step,
      100);
}

TEST_F(Damage, WithoutAnyThatVerifiesTheFirstProblemIsTold) {
  write("ckpt/step_00000100/rank_00000.safetensors", "x");
  write("ckpt/step_00000200/rank_00000.safetensors", "x");
  std::vector<std::string> notes;
  try {
    newest_verified(Folder::open(path("ckpt")), 1, notes);
    FAIL();
  } catch (const CheckpointRefused& error) {
    EXPECT_THAT(error.what(), HasSubstr("step_00000200"));
  }
  EXPECT_THAT(notes, SizeIs(2));
}

}  // namespace
}  // namespace canzona::checkpoint::reader_damage_test
