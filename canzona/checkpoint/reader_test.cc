#include "canzona/checkpoint/reader.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"
#include "canzona/checkpoint/test_sample.h"
#include "canzona/shapes/safetensors.h"

namespace canzona::checkpoint::reader_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Reading : public FolderTest {
 protected:
  CheckpointReader reader_of(int64_t step) const {
    return open_checkpoint(path("ckpt/" + checkpoint_name(step)));
  }
};

// Saves and loads as a program would.
TEST_F(Reading, WhatWasSavedIsLoaded) {
  CheckpointStore store(path("ckpt"), "test");
  const std::vector<float> upper = {1, 2, 3};
  const std::vector<float> lower = {4, 5, 6};
  const LogicalTensor w{"model/w", DType::kFp32, {2, 3}};
  PendingCheckpoint pending = store.begin(7);
  const auto shard = [&](int64_t rank, const std::vector<float>& row) {
    return write_shard(
        pending.folder(), {.step = 7, .rank = rank, .world = 2},
        {{w, {{rank, 0}, {1, 3}}, std::as_bytes(std::span(row))}});
  };
  const std::vector<std::string> records = {shard(0, upper), shard(1, lower)};
  pending.add_side_file("config.json", "{}");
  pending.commit(records, "");

  const CheckpointReader reader = reader_of(7);
  std::vector<float> column(2);
  reader.load({{"model/w",
                {{0, 1}, {2, 1}},
                std::as_writable_bytes(std::span(column))}});
  EXPECT_THAT(column, ElementsAre(2, 5));
  EXPECT_EQ(reader.side_file("config.json"), "{}");
  EXPECT_THAT(reader.verify(), IsEmpty());
}

TEST_F(Reading, AnyNumberOfRanksSavesTheSame) {
  for (const int64_t ranks : {1, 2, 3, 4, 7, 8}) {
    CheckpointStore store(path("ckpt" + std::to_string(ranks)), "test");
    save_sample(store, 30, ranks);
    const CheckpointReader reader = open_checkpoint(
        path("ckpt" + std::to_string(ranks) + "/step_00000030/"));
    EXPECT_EQ(reader.manifest().world, ranks);
    expect_sample(reader, 30);
    EXPECT_THAT(reader.verify(3), IsEmpty());
  }
}

TEST_F(Reading, AnyBoxIsPutTogetherFromThoseSaved) {
  CheckpointStore store(path("ckpt"), "test");
  save_sample(store, 30, 3);
  const CheckpointReader reader = reader_of(30);
  const LogicalTensor tensor = sample_tensors()[2];  // 2 x 3 x 4 of 8 bytes
  const std::string all = sample_bytes(tensor, 30);
  for (uint64_t i = 0; i < 200; ++i) {
    Box box;
    for (size_t d = 0; d < 3; ++d) {
      const int64_t dim = tensor.shape[d];
      box.first.push_back(
          static_cast<int64_t>(bits_at(i, 2 * d) % static_cast<uint64_t>(dim)));
      box.count.push_back(
          1 + static_cast<int64_t>(bits_at(i, 2 * d + 1) %
                                   static_cast<uint64_t>(dim - box.first[d])));
    }
    std::string expected;
    for (int64_t a = 0; a < box.count[0]; ++a)
      for (int64_t b = 0; b < box.count[1]; ++b)
        for (int64_t c = 0; c < box.count[2]; ++c)
          expected += all.substr(
              static_cast<size_t>(((box.first[0] + a) * 12 +
                                   (box.first[1] + b) * 4 + box.first[2] + c) *
                                  8),
              8);
    std::string loaded(expected.size(), '?');
    reader.load(
        {{tensor.name, box, std::as_writable_bytes(std::span(loaded))}});
    ASSERT_EQ(loaded, expected) << to_string(box);
  }
}

// More than two chunks, filled by a function, read in parts and by several
// threads.
TEST_F(Reading, LargeTensorsComeInChunks) {
  const LogicalTensor w{"model/w", DType::kI32, {1500, 1601}};
  const auto value = [](int64_t i) { return static_cast<int32_t>(i * 7 + 3); };
  CheckpointStore store(path("ckpt"), "test");
  PendingCheckpoint pending = store.begin(1);
  const auto fill = [&](int64_t offset, std::span<std::byte> to) {
    for (size_t k = 0; k < to.size(); ++k) {
      const int64_t at = offset + static_cast<int64_t>(k);
      to[k] = static_cast<std::byte>(static_cast<uint32_t>(value(at / 4)) >>
                                     (8 * (at % 4)));
    }
  };
  const std::string record = write_shard(
      pending.folder(), {.step = 1},
      {{w, whole_box(w.shape), {}, fill},
       {{"model/s", DType::kU8, {}}, {}, std::as_bytes(std::span("x", 1))}});
  EXPECT_EQ(parse_record(record, "r").files[0].chunks.size(), 3u);
  pending.commit({record}, "");
  const CheckpointReader reader = reader_of(1);
  EXPECT_THAT(reader.verify(2), IsEmpty());
  for (const int threads : {1, 2, 5}) {
    std::vector<int32_t> whole(1500 * 1601);
    std::vector<int32_t> part(1400 * 3);
    reader.load({{"model/w", whole_box(w.shape),
                  std::as_writable_bytes(std::span(whole))},
                 {"model/w",
                  {{50, 1000}, {1400, 3}},
                  std::as_writable_bytes(std::span(part))}},
                {.threads = threads});
    for (size_t i = 0; i < whole.size(); ++i)
      ASSERT_EQ(whole[i], value(static_cast<int64_t>(i)));
    for (int64_t i = 0; i < 1400; ++i)
      for (int64_t j = 0; j < 3; ++j)
        ASSERT_EQ(part[static_cast<size_t>(3 * i + j)],
                  value((50 + i) * 1601 + 1000 + j));
  }
}

// Python's package finds plain names and aligned data.
TEST_F(Reading, ShardsArePlainSafetensors) {
  CheckpointStore store(path("ckpt"), "test");
  PendingCheckpoint pending = store.begin(5);
  const LogicalTensor w{"model/w", DType::kFp32, {4}};
  const std::vector<float> values = {1, 2, 3, 4};
  const auto bytes = std::as_bytes(std::span(values));
  pending.commit({write_shard(pending.folder(), {.step = 5},
                              {{w, {{2}, {2}}, bytes.subspan(8)},
                               {w, {{0}, {2}}, bytes.first(8)}})},
                 "");
  const std::string file =
      bytes_of("ckpt/step_00000005/rank_00000.safetensors");
  const SafetensorsHeader header =
      read_safetensors_header(file, std::ssize(file), "f");
  ASSERT_THAT(header.tensors, SizeIs(2));
  EXPECT_EQ(header.tensors[0].name, "model/w");
  EXPECT_EQ(header.tensors[1].name, "model/w#2");
  EXPECT_EQ(header.tensors[0].begin % 8, 0);
  save_sample(store, 6, 3);
  for (const char* rank : {"0", "1", "2"}) {
    const std::string mixed = bytes_of(
        std::string("ckpt/step_00000006/rank_0000") + rank + ".safetensors");
    for (const StoredTensor& tensor :
         read_safetensors_header(mixed, std::ssize(mixed), "f").tensors)
      EXPECT_EQ(tensor.begin % size_of(*dtype_in_file(tensor.dtype)), 0)
          << tensor.name;
  }
  std::vector<float> loaded(4);
  reader_of(5).load(
      {{"model/w", whole_box({4}), std::as_writable_bytes(std::span(loaded))}});
  EXPECT_EQ(loaded, values);
}

TEST_F(Reading, WhatIsNotThereIsNamed) {
  CheckpointStore store(path("ckpt"), "test");
  save_sample(store, 30);
  const CheckpointReader reader = reader_of(30);
  std::string to(4, '?');
  const auto bytes = std::as_writable_bytes(std::span(to));
  EXPECT_THROW(reader.load({{"model/none", {{0}, {1}}, bytes}}), UsageError);
  EXPECT_THROW(reader.load({{"model/layers.0.w", {{7, 0}, {1, 1}}, bytes}}),
               UsageError);
  EXPECT_THROW(reader.load({{"model/layers.0.w", {{0, 0}, {2, 1}}, bytes}}),
               InternalError);
  EXPECT_THROW(reader.side_file("rng.json"), CheckpointRefused);
  EXPECT_THROW(reader.side_file("../latest"), CheckpointRefused);
  EXPECT_THROW(open_checkpoint(path("nowhere")), UsageError);
  EXPECT_THROW(open_checkpoint(path("ckpt")), CheckpointRefused);
}

TEST_F(Reading, C8_StrictnessDecidesAboutMissingAndExtraTensors) {
  Manifest saved;
  for (const char* name : {"a", "b", "c"})
    saved.tensors.push_back({{name, DType::kFp32, {2}}, {}});
  const auto wanted = [](const std::vector<std::string>& names) {
    std::vector<LogicalTensor> out;
    for (const std::string& name : names)
      out.push_back({name, DType::kFp32, {2}});
    return out;
  };
  using enum Strictness;
  EXPECT_THAT(match_tensors(saved, wanted({"a", "b", "c"}), kExact), IsEmpty());
  EXPECT_THROW(match_tensors(saved, wanted({"a", "b"}), kExact),
               CheckpointRefused);
  EXPECT_THAT(match_tensors(saved, wanted({"a", "b"}), kIgnoreExtra),
              IsEmpty());
  EXPECT_THROW(match_tensors(saved, wanted({"a", "d"}), kIgnoreExtra),
               CheckpointRefused);
  EXPECT_THAT(match_tensors(saved, wanted({"a", "d"}), kWarn), SizeIs(3));
  std::vector<LogicalTensor> other = wanted({"a", "b", "c"});
  other[1].shape = {3};
  try {
    match_tensors(saved, other, kWarn);
    FAIL();
  } catch (const CheckpointRefused& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("'b': saved F32 [2], expected F32 [3]"));
  }
  std::vector<std::string> many;
  for (int i = 0; i < 15; ++i) many.push_back("m" + std::to_string(i));
  try {
    match_tensors(saved, wanted(many), kExact);
    FAIL();
  } catch (const CheckpointRefused& error) {
    EXPECT_THAT(error.what(), HasSubstr("15 tensors are missing"));
    EXPECT_THAT(error.what(), HasSubstr("… and 5 more"));
    EXPECT_THAT(error.what(), HasSubstr("3 tensors that only the checkpoint"));
  }
}

// Checkpoints of every released format must stay readable. The first was
// written by this test with CANZONA_GOLDEN_WRITE=tests/data/checkpoints/v1.
TEST_F(Reading, C9_GoldenCheckpointsAreRead) {
  if (const char* folder = std::getenv("CANZONA_GOLDEN_WRITE")) {
    CheckpointStore store(folder, "test");
    save_sample(store, 100, 2);
    save_sample(store, 200, 3);
  }
  const std::string folder = CANZONA_GOLDEN_CHECKPOINTS "/v1";
  std::vector<std::string> notes;
  const CheckpointReader newest =
      newest_verified(Folder::open(folder), 1, notes);
  EXPECT_THAT(notes, IsEmpty());
  expect_sample(newest, 200);
  expect_sample(open_checkpoint(folder + "/step_00000100"), 100);
  EXPECT_EQ(newest.manifest().version, 1);
  EXPECT_EQ(newest.side_file("config.json"), "{\"step\": 200}");
}

}  // namespace
}  // namespace canzona::checkpoint::reader_test
