// Checkpoints for tests: a few tensors whose elements encode their tensor and
// position, cut over ranks in a way that depends on their number.
//
//   save_sample(store, 100, 3);
//   expect_sample(reader, 100);
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/shard_writer.h"
#include "canzona/checkpoint/store.h"

namespace canzona::checkpoint {

inline std::vector<LogicalTensor> sample_tensors() {
  return {{"model/layers.0.w", DType::kFp32, {7, 5}},
          {"model/norm", DType::kBf16, {11}},
          {"optim/factor/layers.0.w", DType::kFp64, {2, 3, 4}},
          {"optim/step/layers.0.w", DType::kI64, {}},
          {"optim/empty", DType::kFp32, {0, 4}}};
}

// Returns all bytes of a tensor as of step `step`.
inline std::string sample_bytes(const LogicalTensor& tensor, int64_t step) {
  int64_t bytes = size_of(tensor.type);
  for (const int64_t dim : tensor.shape) bytes *= dim;
  auto seed = static_cast<uint64_t>(step);
  for (const char c : tensor.name)
    seed = seed * 31 + static_cast<unsigned char>(c);
  std::string out(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<char>(bits_at(seed, i));
  return out;
}

// Rows of the first dimension from rank·n/ranks on; rank 0 has the scalars.
inline Box sample_box(const LogicalTensor& tensor, int64_t rank,
                      int64_t ranks) {
  Box box{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
  if (tensor.shape.empty()) return box;
  const int64_t rows = tensor.shape[0];
  box.first[0] = rows * rank / ranks;
  box.count[0] = rows * (rank + 1) / ranks - box.first[0];
  return box;
}

struct SampleShard {
  std::vector<std::string> bytes;  // viewed by the sources
  std::vector<BoxSource> sources;
};

inline SampleShard sample_shard(int64_t step, int64_t rank, int64_t ranks) {
  SampleShard shard;
  const std::vector<LogicalTensor> tensors = sample_tensors();
  shard.bytes.reserve(tensors.size());
  for (const LogicalTensor& tensor : tensors) {
    if (tensor.shape.empty() && rank > 0) continue;
    const std::string all = sample_bytes(tensor, step);
    const Box box = sample_box(tensor, rank, ranks);
    const size_t row = tensor.shape.empty() || tensor.shape[0] == 0
                           ? all.size()
                           : all.size() / static_cast<size_t>(tensor.shape[0]);
    const size_t first =
        tensor.shape.empty() ? 0 : static_cast<size_t>(box.first[0]);
    const size_t count =
        tensor.shape.empty() ? 1 : static_cast<size_t>(box.count[0]);
    shard.bytes.push_back(all.substr(first * row, count * row));
    shard.sources.push_back(
        {tensor, box, std::as_bytes(std::span(shard.bytes.back()))});
  }
  return shard;
}

// Saves as a run of this many ranks does.
inline void save_sample(CheckpointStore& store, int64_t step,
                        int64_t ranks = 2) {
  PendingCheckpoint pending = store.begin(step);
  std::vector<std::string> records;
  for (int64_t rank = 0; rank < ranks; ++rank)
    records.push_back(write_shard(
        open_pending(store.folder().path(), pending.folder_name(),
                     store.folder().system()),
        {step, rank, ranks}, sample_shard(step, rank, ranks).sources));
  pending.add_side_file("config.json",
                        "{\"step\": " + std::to_string(step) + "}");
  pending.commit(records, std::string(64, 'a'));
}

// Expects the whole checkpoint to be that of `step`.
inline void expect_sample(const CheckpointReader& reader, int64_t step) {
  ASSERT_EQ(reader.manifest().step, step);
  std::vector<std::string> loaded;
  std::vector<BoxTarget> targets;
  loaded.reserve(sample_tensors().size());
  for (const LogicalTensor& tensor : sample_tensors()) {
    loaded.emplace_back(sample_bytes(tensor, step).size(), '?');
    targets.push_back({tensor.name, whole_box(tensor.shape),
                       std::as_writable_bytes(std::span(loaded.back()))});
  }
  reader.load(targets);
  for (size_t i = 0; i < loaded.size(); ++i)
    EXPECT_EQ(loaded[i], sample_bytes(sample_tensors()[i], step))
        << sample_tensors()[i].name;
}

inline std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const FolderEntry& entry : Folder::open(path).entries())
    names.push_back(entry.name);
  return names;
}

// Returns the first checkpoint, in the order of resume_order(), that verifies.
// Adds a line to `notes` for each one that it passed over. Throws
// CheckpointRefused if none verifies.
inline CheckpointReader newest_verified(const Folder& store, int threads,
                                        std::vector<std::string>& notes) {
  for (const ListedCheckpoint& checkpoint : resume_order(store)) {
    try {
      CheckpointReader reader(store.open_folder(checkpoint.name));
      const std::vector<std::string> problems = reader.verify(threads);
      if (problems.empty()) return reader;
      notes.push_back(cat(checkpoint.name, ": ", problems.front()));
    } catch (const DataLost& error) {
      notes.push_back(cat(checkpoint.name, ": ", error.what()));
    }
  }
  throw CheckpointRefused(
      cat("no checkpoint in ", quoted(store.path(), 300), " verifies",
          notes.empty() ? ": there is none" : "; the first problem: ",
          notes.empty() ? "" : notes.front()));
}

}  // namespace canzona::checkpoint
