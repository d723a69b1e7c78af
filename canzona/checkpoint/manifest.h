// The manifest of a checkpoint: which files it has, their sizes and hashes, and
// which box of which logical tensor lies where in them. docs/checkpoints.md
// shows one.
//
//   Manifest manifest = parse_manifest(text, "manifest.json");
//   const SavedTensor* w = manifest.find("model/w");
//
// The text ends with the SHA-256 of everything before it, so that no byte can
// change unnoticed. It is written last: a folder without one is not a
// checkpoint. Each rank makes a manifest of the one file that it wrote; these
// are merged into the checkpoint's.
//
// Manifests are plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/rooms.h"
#include "canzona/checkpoint/boxes.h"

namespace canzona::checkpoint {

inline constexpr const char* kManifestFormat = "canzona-checkpoint";
// A reader of version r reads manifests with min_reader_version ≤ r. In
// manifests newer than itself it ignores unknown members.
inline constexpr int64_t kCheckpointVersion = 1;
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr int64_t kMaxManifestBytes = 256 << 20;
inline constexpr int64_t kMaxSavedRanks = 100'000;  // five digits
// Every chunk of this many bytes has its own checksum, so that a part of a file
// can be verified.
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
  Box box;
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

  // Returns null if there is no such tensor.
  const SavedTensor* find(std::string_view name) const;
  int64_t file_bytes() const;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// "rank_00012.safetensors"
std::string shard_name(int64_t rank);
bool is_shard_name(std::string_view name);
// "config.json", "rng.json": lower-case letters and '_', then ".json", except
// the manifest itself.
bool is_side_file_name(std::string_view name);

std::string manifest_text(const Manifest& manifest);

// Throw UsageError naming `file` and its fault: its own hash, its JSON (bounded
// in depth and in the numbers of files, tensors and boxes), a newer format,
// names, sizes, or bytes of files that belong to no box or to two.
// parse_manifest() also requires the boxes of every tensor to tile it; those of
// a single rank, read by parse_record(), need not.
Manifest parse_manifest(std::string_view text, const std::string& file);
Manifest parse_record(std::string_view text, const std::string& file);

// Merges the manifests of all ranks, which must be of the same step. Throws
// UsageError if two ranks saved the same file, or tensors of the same name but
// of different types or shapes.
Manifest merged(const std::vector<Manifest>& records);
// Makes the checks of parse_manifest().
void check_manifest(const Manifest& manifest, const std::string& file);

// Parses the JSON of a manifest into the struct: bounded and type-checked, but
// without checking what it means. Only parse_manifest() and parse_record() call
// it.
Manifest read_manifest_json(std::string_view text, const std::string& file);

}  // namespace canzona::checkpoint
