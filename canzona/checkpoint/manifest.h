// The manifest of a checkpoint: which files it has, their sizes and hashes, and
// which box of which logical tensor lies where in them. docs/checkpoints.md
// shows one.
//
//   Manifest manifest = parse_manifest(text, "manifest.json");
//   const SavedTensor* w = manifest.find("model/w");
//
// The text ends with the SHA-256 of all that stands before it, so that no byte
// of it can change unnoticed. It is written last: a checkpoint without one is
// none. What one rank saved is a manifest with one file; those of all ranks
// merge into the checkpoint's.
//
// Plain values; any thread may use them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/checkpoint/boxes.h"

namespace canzona {

// A reader of version r reads what says min_reader_version ≤ r; of versions
// above its own it ignores members that it does not know.
inline constexpr int64_t kCheckpointVersion = 1;
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr int64_t kMaxManifestBytes = 256 << 20;
inline constexpr int64_t kMaxSavedRanks = 100'000;  // five digits
// A checksum of each so many bytes of a file, so that a part of it can be
// checked.
inline constexpr int64_t kChunkBytes = 4 << 20;

struct FileRecord {
  std::string name;  // "rank_00000.safetensors", or "config.json"
  int64_t bytes = 0;
  std::string sha256;               // of the whole file
  std::vector<std::string> chunks;  // Checksum of each chunk
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

struct SavedBox {
  int64_t file = 0;    // index in Manifest::files
  int64_t offset = 0;  // of its bytes in the file
  TensorBox box;
  friend bool operator==(const SavedBox&, const SavedBox&) = default;
};

struct SavedTensor {
  LogicalTensor tensor;
  std::vector<SavedBox> boxes;
  friend bool operator==(const SavedTensor&, const SavedTensor&) = default;
};

struct Manifest {
  int64_t step = 0;
  int64_t world = 1;        // ranks that saved it
  std::string plan_digest;  // of the plan that was running; may be empty
  int64_t version = kCheckpointVersion;
  int64_t min_reader_version = 1;
  int64_t chunk_bytes = kChunkBytes;
  std::vector<FileRecord> files;     // by name
  std::vector<SavedTensor> tensors;  // by name

  // Null if there is none.
  const SavedTensor* find(std::string_view name) const;
  int64_t file_bytes() const;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// "rank_00012.safetensors"
std::string shard_name(int64_t rank);
bool is_shard_name(std::string_view name);
// "config.json", "rng.json": small letters and '_', then ".json", but not the
// manifest's own.
bool is_side_file_name(std::string_view name);

std::string manifest_text(const Manifest& manifest);

// UsageError names `file`, and what is wrong with it: its own hash, its JSON
// (bounded: depth, numbers of files, tensors and boxes), a newer format, names,
// sizes, or bytes of files that belong to no box or two. Of a whole checkpoint,
// boxes must also tile their tensors; of what one rank saved they need not.
Manifest parse_manifest(std::string_view text, const std::string& file);
Manifest parse_record(std::string_view text, const std::string& file);

// What ranks saved, as one; of all the same step. UsageError if two saved the
// same file, or tensors of one name and other types or shapes.
Manifest merged(const std::vector<Manifest>& records);
// As parse_manifest() does it.
void check_manifest(const Manifest& manifest, const std::string& file);

}  // namespace canzona
