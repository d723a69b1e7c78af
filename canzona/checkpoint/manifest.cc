#include "canzona/checkpoint/manifest.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "canzona/base/check.h"
#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"

namespace canzona::checkpoint {
namespace {

// A manifest ends with this member: the hash of all bytes before it.
constexpr std::string_view kHashMember = ",\"sha256\":\"";
constexpr std::string_view kHashEnd = "\"}\n";
constexpr size_t kHashDigits = 64;
constexpr size_t kTailBytes =
    kHashMember.size() + kHashDigits + kHashEnd.size();

[[noreturn]] void refuse_manifest(const std::string& file,
                                  const std::string& problem) {
  throw UsageError(cat(printable(file), ": ", problem));
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

void check_hash(std::string_view text, const std::string& file) {
  if (text.size() < kTailBytes)
    refuse_manifest(file, cat(text.size(), " bytes are too few: cut short"));
  const std::string_view body = text.substr(0, text.size() - kTailBytes);
  if (text.substr(body.size()) != cat(kHashMember, sha256_hex(body), kHashEnd))
    refuse_manifest(
        file, "damaged: its contents do not match the SHA-256 at its end");
}

void write_box(JsonWriter& out, const SavedBox& saved) {
  out.begin_object().field("file", saved.file).field("offset", saved.offset);
  out.member("first").values(saved.box.first);
  out.member("count").values(saved.box.count).end_object();
}

void write_file_record(JsonWriter& out, const FileRecord& file) {
  out.begin_object().field("name", file.name).field("bytes", file.bytes);
  out.field("sha256", file.sha256);
  out.member("chunks").values(file.chunks).end_object();
}

void check_file_record(const FileRecord& file, const Manifest& manifest,
                       const std::string& where) {
  const auto refuse = [&](const std::string& problem) {
    refuse_manifest(where, cat("file ", quoted(file.name), ": ", problem));
  };
  if (!is_shard_name(file.name) && !is_side_file_name(file.name))
    refuse("its name is neither rank_NNNNN.safetensors nor NAME.json");
  if (file.bytes < 0) refuse(cat(file.bytes, " bytes"));
  if (!is_hex(file.sha256, kHashDigits)) refuse("its sha256 is not a SHA-256");
  const int64_t chunks = file.bytes / manifest.chunk_bytes +
                         (file.bytes % manifest.chunk_bytes != 0 ? 1 : 0);
  if (std::ssize(file.chunks) != chunks)
    refuse(cat(file.chunks.size(), " checksums of chunks for ", file.bytes,
               " bytes, expected ", chunks));
  for (const std::string& chunk : file.chunks)
    if (!is_hex(chunk, 32)) refuse("the checksum of a chunk is not valid");
}

// The extent of a box's bytes in its file.
struct Extent {
  int64_t file;
  int64_t begin;
  int64_t end;
  size_t tensor;
};

Extent extent_of(const Manifest& manifest, size_t tensor, const SavedBox& saved,
                 const std::string& where) {
  const LogicalTensor& logical = manifest.tensors[tensor].tensor;
  const auto refuse = [&](const std::string& problem) {
    refuse_manifest(where, cat("tensor ", quoted(logical.name), ": ", problem));
  };
  check_box(logical, saved.box, where);
  if (saved.file < 0 || saved.file >= std::ssize(manifest.files))
    refuse(cat("a box is in file ", saved.file, " of ", manifest.files.size()));
  const FileRecord& file = manifest.files[index(saved.file)];
  if (!is_shard_name(file.name))
    refuse(cat("a box is in ", quoted(file.name), ", which is not a shard"));
  const int64_t bytes = bytes_of(logical, saved.box);
  if (saved.offset < 0 || bytes > file.bytes ||
      saved.offset > file.bytes - bytes)
    refuse(cat(bytes, " bytes at ", saved.offset, " exceed the ", file.bytes,
               " bytes of ", quoted(file.name)));
  return {saved.file, saved.offset, saved.offset + bytes, tensor};
}

// The boxes of every file must cover its data, each byte once.
void check_extents(const Manifest& manifest, std::vector<Extent> extents,
                   const std::string& where) {
  std::ranges::sort(extents, [](const Extent& a, const Extent& b) {
    return std::pair(a.file, a.begin) < std::pair(b.file, b.begin);
  });
  for (size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    const bool is_last =
        i + 1 == extents.size() || extents[i + 1].file != extent.file;
    const FileRecord& file = manifest.files[index(extent.file)];
    const int64_t next = is_last ? file.bytes : extents[i + 1].begin;
    if (extent.end == next) continue;
    refuse_manifest(
        where,
        cat("file ", quoted(file.name), ": bytes ", std::min(extent.end, next),
            " to ", std::max(extent.end, next),
            extent.end < next ? " belong to no box, behind tensor "
                              : " belong to two boxes, one of tensor ",
            quoted(manifest.tensors[extent.tensor].tensor.name)));
  }
}

template <class Range, class Name>
void require_order(const Range& range, const Name& name, const char* what,
                   const std::string& where) {
  for (size_t i = 1; i < range.size(); ++i)
    if (!(name(range[i - 1]) < name(range[i])))
      refuse_manifest(where, cat(what, " ", quoted(name(range[i])),
                                 " comes twice or out of order"));
}

void check_saved(const Manifest& manifest, const std::string& where) {
  if (manifest.step < 0) refuse_manifest(where, "a step below 0");
  if (manifest.world < 1 || manifest.world > kMaxSavedRanks)
    refuse_manifest(where, cat("world ", manifest.world, " is not from 1 to ",
                               kMaxSavedRanks));
  if (!manifest.plan_digest.empty() &&
      !is_hex(manifest.plan_digest, kHashDigits))
    refuse_manifest(where, "plan_digest is not a SHA-256");
  if (manifest.chunk_bytes < 1 << 12 || manifest.chunk_bytes > 1 << 30 ||
      manifest.chunk_bytes % 32 != 0)
    refuse_manifest(where, cat("chunks of ", manifest.chunk_bytes, " bytes"));
  require_order(
      manifest.files, [](const FileRecord& f) { return f.name; }, "file",
      where);
  require_order(
      manifest.tensors, [](const SavedTensor& t) { return t.tensor.name; },
      "tensor", where);
  for (const FileRecord& file : manifest.files)
    check_file_record(file, manifest, where);
  std::vector<Extent> extents;
  for (size_t t = 0; t < manifest.tensors.size(); ++t) {
    check_tensor(manifest.tensors[t].tensor, where);
    for (const SavedBox& saved : manifest.tensors[t].boxes)
      extents.push_back(extent_of(manifest, t, saved, where));
  }
  check_extents(manifest, std::move(extents), where);
}

Manifest parse_checked(std::string_view text, const std::string& file) {
  if (std::ssize(text) > kMaxManifestBytes)
    refuse_manifest(
        file, cat(text.size(), " bytes, the limit is ", kMaxManifestBytes));
  check_hash(text, file);
  return read_manifest_json(text, file);
}

}  // namespace

const SavedTensor* Manifest::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      tensors, name, std::less<>(),
      [](const SavedTensor& t) -> std::string_view { return t.tensor.name; });
  return found != tensors.end() && found->tensor.name == name ? &*found
                                                              : nullptr;
}

int64_t Manifest::file_bytes() const {
  int64_t sum = 0;
  for (const FileRecord& file : files)
    sum = checked_add(sum, file.bytes, "bytes of a checkpoint");
  return sum;
}

std::string shard_name(int64_t rank) {
  CANZONA_CHECK(rank >= 0 && rank < kMaxSavedRanks, "rank ", rank);
  std::string digits = std::to_string(rank);
  digits.insert(0, 5 - digits.size(), '0');
  return cat("rank_", digits, ".safetensors");
}

bool is_shard_name(std::string_view name) {
  constexpr std::string_view kPattern = "rank_00000.safetensors";
  return name.size() == kPattern.size() &&
         std::ranges::equal(name, kPattern, [](char c, char p) {
           return p == '0' ? c >= '0' && c <= '9' : c == p;
         });
}

bool is_side_file_name(std::string_view name) {
  constexpr std::string_view kEnd = ".json";
  constexpr size_t kMaxBytes = 64;
  if (!name.ends_with(kEnd) || name.size() == kEnd.size() ||
      name.size() > kMaxBytes || name == kManifestFile)
    return false;
  name.remove_suffix(kEnd.size());
  return std::ranges::all_of(
      name, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

std::string manifest_text(const Manifest& manifest) {
  JsonWriter out;
  out.begin_object();
  out.field("format", kManifestFormat)
      .field("format_version", manifest.version)
      .field("min_reader_version", manifest.min_reader_version)
      .field("step", manifest.step)
      .field("world", manifest.world)
      .field("plan_digest", manifest.plan_digest)
      .field("chunk_bytes", manifest.chunk_bytes);
  out.member("files").begin_array();
  for (const FileRecord& file : manifest.files) write_file_record(out, file);
  out.end_array().member("tensors").begin_array();
  for (const SavedTensor& saved : manifest.tensors) {
    out.begin_object().field("name", saved.tensor.name);
    out.field("dtype", name_in_file(saved.tensor.type));
    out.member("shape").values(saved.tensor.shape);
    out.member("boxes").begin_array();
    for (const SavedBox& box : saved.boxes) write_box(out, box);
    out.end_array().end_object();
  }
  out.end_array().end_object();
  std::string text = out.take();
  text.pop_back();  // the brace that ends it
  const std::string tail = cat(kHashMember, sha256_hex(text), kHashEnd);
  return text + tail;
}

Manifest parse_record(std::string_view text, const std::string& file) {
  Manifest manifest = parse_checked(text, file);
  check_saved(manifest, file);
  return manifest;
}

Manifest parse_manifest(std::string_view text, const std::string& file) {
  Manifest manifest = parse_checked(text, file);
  check_manifest(manifest, file);
  return manifest;
}

void check_manifest(const Manifest& manifest, const std::string& file) {
  check_saved(manifest, file);
  for (const SavedTensor& saved : manifest.tensors) {
    std::vector<Box> boxes;
    boxes.reserve(saved.boxes.size());
    for (const SavedBox& box : saved.boxes) boxes.push_back(box.box);
    check_tiling(saved.tensor, boxes, file);
  }
}

Manifest merged(const std::vector<Manifest>& records) {
  CANZONA_CHECK(!records.empty(), "no records");
  Manifest out = records.front();
  out.files.clear();
  out.tensors.clear();
  for (const Manifest& record : records)
    out.files.insert(out.files.end(), record.files.begin(), record.files.end());
  std::ranges::sort(out.files, {}, &FileRecord::name);
  std::map<std::string_view, int64_t> place;
  for (const FileRecord& file : out.files)
    if (!place.emplace(file.name, std::ssize(place)).second)
      throw UsageError(
          cat("the file ", quoted(file.name), " was saved by two ranks"));
  std::map<std::string_view, SavedTensor> tensors;
  for (const Manifest& record : records) {
    CANZONA_CHECK_EQ(record.step, out.step, "step of a record");
    for (const SavedTensor& saved : record.tensors) {
      SavedTensor& all = tensors[saved.tensor.name];
      if (all.tensor.name.empty()) all.tensor = saved.tensor;
      if (all.tensor != saved.tensor)
        throw UsageError(cat("tensor ", quoted(saved.tensor.name),
                             " was saved by ranks with different types or "
                             "shapes"));
      for (SavedBox box : saved.boxes) {
        box.file = place.at(record.files[index(box.file)].name);
        all.boxes.push_back(std::move(box));
      }
    }
  }
  for (auto& [name, saved] : tensors) out.tensors.push_back(std::move(saved));
  return out;
}

}  // namespace canzona::checkpoint
