#include "canzona/checkpoint/hf_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/checkpoint/boxes.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/shapes/names.h"
#include "canzona/shapes/safetensors.h"

namespace canzona {
namespace {

constexpr int64_t kMaxHfConfig = 4 << 20;
// As many entries as an index may have, at some 100 bytes each.
constexpr int64_t kMaxHfIndex = 256 << 20;

// Turns a UsageError of a parser of untrusted text into a refusal of the data.
template <class Work>
auto parsed_or_refused(const Work& work) {
  try {
    return work();
  } catch (const UsageError& error) {
    throw CheckpointRefused(error.what());
  }
}

const FolderEntry* entry_named(const std::vector<FolderEntry>& entries,
                               std::string_view name) {
  const auto found = std::ranges::find(entries, name, &FolderEntry::name);
  return found == entries.end() ? nullptr : &*found;
}

// The hub's cache consists of links into another folder.
void require_file(const Folder& folder, const FolderEntry& entry) {
  if (entry.kind == FolderEntryKind::kFile) return;
  throw CheckpointRefused(
      cat(quoted(folder.path() + "/" + entry.name, 300),
          entry.kind == FolderEntryKind::kFolder
              ? " is a folder, expected a file"
              : " is no regular file; links are not followed: copy the folder "
                "with cp -rL"));
}

// Returns true for the name of a numbered shard, such as
// model-00001-of-00002.safetensors.
bool is_numbered_shard(std::string_view name) {
  return name.starts_with("model-") && name.ends_with(".safetensors") &&
         name.find("-of-") != std::string_view::npos;
}

[[noreturn]] void refuse_without_weights(
    const Folder& folder, const std::vector<FolderEntry>& entries) {
  const auto pickle = std::ranges::find_if(entries, [](const auto& entry) {
    return entry.name.ends_with(".bin") || entry.name.ends_with(".pt") ||
           entry.name.ends_with(".pth");
  });
  throw UsageError(cat(
      quoted(folder.path(), 300), " holds no weights: expected ", kHfWeights,
      " or ", kHfIndex,
      pickle == entries.end()
          ? std::string()
          : cat("; ", quoted(pickle->name),
                " is not read, since such files can run code: convert it to "
                "safetensors")));
}

float from_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 0x1F;
  const uint32_t fraction = bits & 0x3FF;
  if (exponent == 0) {  // zero, or below 2^-14: a multiple of 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  // Infinities and NaNs keep their fraction; others change the bias.
  const uint32_t wide = exponent == 0x1F ? 0xFF : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

float from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Widens the 16-bit numbers of a piece.
template <class Widen>
void widen_piece(std::span<const std::byte> bytes, std::span<float> to,
                 const Widen& widen) {
  for (size_t i = 0; i < to.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, sizeof bits);
    to[i] = widen(bits);
  }
}

bool is_readable(std::optional<StoredType> type) {
  return type == StoredType::kF32 || type == StoredType::kBf16 ||
         type == StoredType::kF16;
}

}  // namespace

HfFolder HfFolder::open(const std::string& path, FileSystem& system) {
  std::string plain = path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  HfFolder folder(Folder::open(plain, system));
  folder.read_files(folder.folder_.entries());
  return folder;
}

bool HfFolder::has_weights(const std::string& path) {
  const auto there = [&](const char* name) {
    struct stat status {};
    return ::lstat(cat(path, "/", name).c_str(), &status) == 0;
  };
  return there(kHfWeights) || there(kHfIndex);
}

void HfFolder::read_files(const Listing& there) {
  const FolderEntry* single = entry_named(there, kHfWeights);
  const FolderEntry* index = entry_named(there, kHfIndex);
  if (single == nullptr && index == nullptr)
    refuse_without_weights(folder_, there);
  if (single != nullptr && index != nullptr)
    throw CheckpointRefused(cat(quoted(path(), 300), " has both ", kHfWeights,
                                " and ", kHfIndex,
                                "; remove the one that is not meant"));
  if (index == nullptr)
    add_shard(single->name, there);
  else
    read_shards(there);
  unwrap_entries();
  std::ranges::sort(entries_, {}, &HfEntry::name);
}

// Reads every shard that the index names, and refuses other files that look
// like shards.
void HfFolder::read_shards(const Listing& there) {
  require_file(folder_, *entry_named(there, kHfIndex));
  const std::string file = path() + "/" + kHfIndex;
  const WeightIndex index = parsed_or_refused([&] {
    return parse_weight_index(folder_.read_file(kHfIndex, kMaxHfIndex), file);
  });
  for (const std::string& shard : index.shards)
    parsed_or_refused([&] { check_component(shard, cat(file, ": shard")); });
  for (const FolderEntry& entry : there)
    if (is_numbered_shard(entry.name) &&
        std::ranges::find(index.shards, entry.name) == index.shards.end())
      throw CheckpointRefused(cat(quoted(path() + "/" + entry.name, 300),
                                  " is not named by ", kHfIndex,
                                  ": a shard of other weights"));
  for (uint32_t shard = 0; shard < index.shards.size(); ++shard) {
    const size_t before = entries_.size();
    add_shard(index.shards[shard], there);
    std::vector<std::string_view> held;
    for (size_t i = before; i < entries_.size(); ++i)
      held.push_back(entries_[i].name);
    parsed_or_refused([&] {
      check_shard(index, shard, held, path() + "/" + index.shards[shard]);
    });
  }
}

void HfFolder::add_shard(const std::string& name, const Listing& there) {
  if (const FolderEntry* entry = entry_named(there, name))
    require_file(folder_, *entry);
  const InputFile file = folder_.open_file(name);
  const auto start = [&](int64_t bytes) {
    std::string text(index(std::min(bytes, file.size())), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return text;
  };
  SafetensorsHeader header = parsed_or_refused([&] {
    const int64_t length = safetensors_header_length(
        start(kSafetensorsLengthBytes), file.size(), file.path());
    return read_safetensors_header(start(kSafetensorsLengthBytes + length),
                                   file.size(), file.path());
  });
  for (StoredTensor& tensor : header.tensors)
    entries_.push_back({std::move(tensor.name), std::move(tensor.dtype),
                        std::move(tensor.shape), shards_.size(), tensor.begin});
  shards_.push_back({name, file.size()});
}

// Shards and index were compared under their stored names; from now on names
// are the model's.
void HfFolder::unwrap_entries() {
  std::vector<std::string*> names;
  for (HfEntry& entry : entries_) {
    entry.stored_name = entry.name;
    names.push_back(&entry.name);
  }
  parsed_or_refused([&] { unwrap_names(names, path()); });
}

std::string HfFolder::config_json() const {
  const Listing there = folder_.entries();
  const FolderEntry* entry = entry_named(there, kHfConfig);
  if (entry == nullptr)
    throw UsageError(cat(quoted(path(), 300), " has no ", kHfConfig,
                         ", which says what its weights are"));
  require_file(folder_, *entry);
  return folder_.read_file(kHfConfig, kMaxHfConfig);
}

const HfEntry* HfFolder::find(std::string_view name) const {
  const auto found =
      std::ranges::lower_bound(entries_, name, {}, &HfEntry::name);
  return found == entries_.end() || found->name != name ? nullptr : &*found;
}

std::string HfFolder::path_of(const HfEntry& entry) const {
  return path() + "/" + shards_[entry.file].name;
}

void HfFolder::check_type(const HfEntry& entry) const {
  if (is_readable(stored_type_of(entry.dtype))) return;
  throw CheckpointRefused(cat(quoted(path_of(entry), 300), ": tensor ",
                              quoted(entry.stored_name), " is of dtype ",
                              printable(entry.dtype, 20),
                              ", expected F32, BF16 or F16"));
}

// Opens a file for each call, because a model may have more files than a
// process may hold open.
void HfFolder::read(const HfEntry& entry, int64_t first,
                    std::span<float> to) const {
  constexpr size_t kPiece = 1 << 16;  // elements
  const Shard& shard = shards_[entry.file];
  const InputFile file = folder_.open_file(shard.name);
  if (file.size() != shard.bytes)
    throw CheckpointRefused(cat(quoted(file.path(), 300), " had ", shard.bytes,
                                " bytes and now has ", file.size(),
                                ": it has changed since it was opened"));
  check_type(entry);
  const StoredType type = *stored_type_of(entry.dtype);
  const int64_t size = size_of(type);
  CANZONA_CHECK(
      first >= 0 && std::ssize(to) <= elements_of(entry.shape) - first,
      "elements of ", entry.name);
  std::vector<std::byte> bytes;
  for (size_t done = 0; done < to.size();) {
    const std::span<float> piece =
        to.subspan(done, std::min(kPiece, to.size() - done));
    const int64_t at =
        entry.begin + (first + static_cast<int64_t>(done)) * size;
    done += piece.size();
    if (type == StoredType::kF32) {
      file.read(at, std::as_writable_bytes(piece));
      continue;
    }
    bytes.resize(2 * piece.size());
    file.read(at, bytes);
    if (type == StoredType::kBf16)
      widen_piece(bytes, piece, from_bf16);
    else
      widen_piece(bytes, piece, from_half);
  }
}

}  // namespace canzona
