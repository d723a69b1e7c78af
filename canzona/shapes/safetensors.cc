#include "canzona/shapes/safetensors.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/shapes/read_model.h"

namespace canzona::shapes {
namespace {

constexpr std::array<std::pair<std::string_view, int>, 20> kTypes = {{
    {"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
    {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},
    {"F32", 32}, {"F64", 64},    {"I64", 64},    {"U64", 64},    {"C64", 64},
}};

struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
  std::string_view type;
};

enum class Metadata { kDrop, kKeep };

constexpr const char* kMetadataKey = "__metadata__";
constexpr int64_t kMaxHeaderValues = 16 * kMaxTensors;
constexpr int64_t kMaxEntryValues = 1'000'000;  // metadata may be long

// {"__metadata__": {"k": "v"}, "x": {"dtype": "F32", "shape": [2, 3],
// "data_offsets": [0, 24]}, …}, one member after another.
class HeaderReader {
 public:
  HeaderReader(const std::string& file, Metadata metadata)
      : file_(printable(file)), keeps_metadata_(metadata == Metadata::kKeep) {}

  void read(std::string_view json) {
    const auto take = [this](std::string&& key, Json&& entry) {
      if (key == kMetadataKey)
        take_metadata(entry);
      else
        take_tensor(std::move(key), entry);
    };
    parse_json(json,
               {.what = file_,
                .max_bytes = kMaxSafetensorsHeader,
                .max_values = kMaxHeaderValues,
                .max_held = kMaxEntryValues},
               {{{}, take}});
  }

  TensorRecords take() { return std::move(records_); }

  // `data_begin` is the byte of the file at which data begins.
  SafetensorsHeader take_all(int64_t data_begin) {
    SafetensorsHeader header;
    header.metadata = std::move(metadata_);
    header.tensors.reserve(records_.size());
    for (const Extent& extent : extents_) {
      TensorRecord& record = records_[header.tensors.size()];
      header.tensors.push_back(
          {std::move(record.name), std::string(extent.type),
           std::move(record.shape), data_begin + extent.begin,
           data_begin + extent.end});
    }
    check_names(header);
    return header;
  }

  // Together the extents must cover [0, data_bytes), each byte once.
  void check_extents(int64_t data_bytes) const {
    std::vector<uint32_t> order(extents_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
      return extents_[a].begin < extents_[b].begin;
    });
    int64_t expected = 0;
    for (const uint32_t i : order) {
      if (extents_[i].begin != expected) {
        refuse(cat("tensor ", quoted(records_[i].name), ": its data begins at ",
                   extents_[i].begin, ", expected ", expected,
                   " (no hole, no overlap)"));
      }
      expected = extents_[i].end;
    }
    if (expected != data_bytes) {
      refuse(cat("the tensors' data ends at ", expected, ", the file's at ",
                 data_bytes));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw UsageError(cat(file_, ": ", problem));
  }

  void take_metadata(const Json& entry) {
    if (std::exchange(has_metadata_, true))
      refuse(cat(kMetadataKey, " comes twice"));
    const std::string where = cat(file_, ": ", kMetadataKey, " (text to text)");
    require_texts(entry, where);
    if (!keeps_metadata_) return;
    for (const auto& [key, value] : entry.items())
      metadata_.emplace(key, value.get<std::string>());
  }

  static void require_texts(const Json& entry, const std::string& where) {
    if (!entry.is_object()) throw UsageError(cat(where, ": no object"));
    for (const auto& [key, value] : entry.items())
      get_string(entry, key.c_str(), where);
  }

  void take_tensor(std::string&& name, const Json& entry) {
    if (records_.size() == size_t{kMaxTensors})
      refuse(cat("more than ", kMaxTensors, " tensors"));
    const std::string where = cat(file_, ": tensor ", quoted(name));
    require_known_keys(entry, {"dtype", "shape", "data_offsets"}, where);
    const std::string dtype = get_string(entry, "dtype", where);
    const auto type = std::ranges::find(
        kTypes, dtype, &std::pair<std::string_view, int>::first);
    if (type == kTypes.end())
      throw UsageError(cat(where, ": unknown dtype ", quoted(dtype)));
    TensorRecord record{.name = std::move(name),
                        .shape = get_integers(entry, "shape", kMaxDims, where)};
    const std::vector<int64_t> offsets =
        get_integers(entry, "data_offsets", kMaxDims, where);
    check_record(record, file_);
    check_bytes(record.shape, offsets, *type, where);
    extents_.push_back({offsets[0], offsets[1], type->first});
    records_.push_back(std::move(record));
  }

  static void check_bytes(const std::vector<int64_t>& shape,
                          const std::vector<int64_t>& offsets,
                          const std::pair<std::string_view, int>& type,
                          const std::string& where) {
    const std::string what = cat(where, ": data_offsets ", shape_text(offsets));
    if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0])
      throw UsageError(cat(what, " are not a valid [begin, end]"));
    int64_t bits = type.second;
    for (const int64_t dim : shape)
      bits = checked_mul(bits, dim, "bits of a tensor");
    // Compared in bytes, because eight times an offset may overflow.
    const int64_t bytes = offsets[1] - offsets[0];
    if (bits % 8 != 0 || bits / 8 != bytes)
      throw UsageError(cat(what, " hold ", bytes, " bytes, shape ",
                           shape_text(shape), " of ", type.first, " needs ",
                           bits, " bits"));
  }

  void check_names(const SafetensorsHeader& header) const {
    std::vector<std::string_view> names;
    names.reserve(header.tensors.size());
    for (const StoredTensor& tensor : header.tensors) {
      names.push_back(tensor.name);
    }
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) {
      refuse(cat("tensor ", quoted(*twice), " comes twice"));
    }
  }

  std::string file_;
  bool keeps_metadata_;
  bool has_metadata_ = false;
  TensorRecords records_;
  std::vector<Extent> extents_;  // of records_, in the same order
  std::map<std::string, std::string> metadata_;
};

// Reads and checks the header; `use` gets the reader and the data's offset.
template <class Use>
auto with_header(std::string_view file_start, int64_t file_size,
                 const std::string& file, Metadata metadata, const Use& use) {
  const int64_t length = safetensors_header_length(file_start, file_size, file);
  const int64_t data_begin = kSafetensorsLengthBytes + length;
  if (static_cast<int64_t>(file_start.size()) < data_begin) {
    throw UsageError(cat(printable(file), ": cut short: ", file_start.size(),
                         " bytes, but the header ends at ", data_begin));
  }
  const std::string_view header =
      file_start.substr(kSafetensorsLengthBytes, length);
  if (!header.starts_with('{')) {
    throw UsageError(
        cat(printable(file), ": not a safetensors file: no '{' at byte 8"));
  }
  HeaderReader reader(file, metadata);
  reader.read(header);
  reader.check_extents(file_size - data_begin);
  return use(reader, data_begin);
}

}  // namespace

int64_t safetensors_header_length(std::string_view file_start,
                                  int64_t file_size, const std::string& file) {
  const std::string who = printable(file);
  if (file_start.size() < size_t{kSafetensorsLengthBytes}) {
    throw UsageError(cat(who, ": ", file_start.size(),
                         " bytes are too few for a safetensors file"));
  }
  uint64_t length = 0;
  for (int i = kSafetensorsLengthBytes - 1; i >= 0; --i) {
    length = length << 8 | static_cast<unsigned char>(file_start[i]);
  }
  if (length > uint64_t{kMaxSafetensorsHeader}) {
    throw UsageError(
        cat(who, ": not a safetensors file: it announces a header of ", length,
            " bytes, the limit is ", kMaxSafetensorsHeader));
  }
  const auto header = static_cast<int64_t>(length);
  if (header > file_size - kSafetensorsLengthBytes) {
    throw UsageError(cat(who, ": cut short: the header should have ", header,
                         " bytes, the file has ", file_size, " in all"));
  }
  return header;
}

TensorRecords read_safetensors(std::string_view file_start, int64_t file_size,
                               const std::string& file) {
  return with_header(
      file_start, file_size, file, Metadata::kDrop,
      [](HeaderReader& reader, int64_t) { return reader.take(); });
}

SafetensorsHeader read_safetensors_header(std::string_view file_start,
                                          int64_t file_size,
                                          const std::string& file) {
  return with_header(file_start, file_size, file, Metadata::kKeep,
                     [](HeaderReader& reader, int64_t data_begin) {
                       return reader.take_all(data_begin);
                     });
}

TensorRecords read_safetensors_file(const std::string& path) {
  constexpr std::string_view kWhat = "safetensors file";
  const int64_t size = file_size(path, kWhat);
  const std::string start =
      read_file_range(path, 0, kSafetensorsLengthBytes, kWhat);
  const int64_t length = safetensors_header_length(start, size, path);
  return read_safetensors(
      read_file_range(path, 0, kSafetensorsLengthBytes + length, kWhat), size,
      path);
}

}  // namespace canzona::shapes

namespace canzona {
using namespace shapes;

Model model_from_safetensors_header(std::string_view file_start,
                                    int64_t file_size,
                                    const std::string& name) {
  return model_from_records(read_safetensors(file_start, file_size, name),
                            {.name = name});
}

namespace {

constexpr size_t kMaxFileName = 255;

bool is_plain_file_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxFileName || name.front() == '.' ||
      name.find("..") != std::string_view::npos) {
    return false;
  }
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c >= 0x20 && c != 0x7F && c != '/' && c != '\\';
  });
}

constexpr int64_t kMaxIndexBytes = 256 << 20;

class IndexReader {
 public:
  explicit IndexReader(const std::string& file) : file_(printable(file)) {}

  WeightIndex read(std::string_view json) {
    const auto take = [this](std::string&& tensor, Json&& shard) {
      add(std::move(tensor), shard);
    };
    const Json root = parse_json(json,
                                 {.what = file_,
                                  .max_bytes = kMaxIndexBytes,
                                  .max_values = 2 * kMaxTensors,
                                  .max_held = kMaxEntryValues},
                                 {{{kMap}, take}});
    if (!get_member(root, kMap, file_).is_object())
      refuse("expected an object");
    if (index_.entries.empty()) refuse("it lists no tensors");
    sort_entries();
    return std::move(index_);
  }

 private:
  static constexpr const char* kMap = "weight_map";

  [[noreturn]] void refuse(const std::string& problem) const {
    throw UsageError(cat(file_, ": ", kMap, ": ", problem));
  }

  void add(std::string&& tensor, const Json& shard) {
    if (!shard.is_string())
      refuse(cat("tensor ", quoted(tensor), ": expected the name of a file"));
    const auto& name = shard.get_ref<const std::string&>();
    if (!is_plain_file_name(name))
      refuse(cat("tensor ", quoted(tensor), " lies in ", quoted(name),
                 ", which is not a plain file name"));
    if (index_.entries.size() == size_t{kMaxTensors})
      refuse(cat("more than ", kMaxTensors, " tensors"));
    index_.entries.push_back({std::move(tensor), shard_number(name)});
  }

  uint32_t shard_number(const std::string& name) {
    const auto next = static_cast<uint32_t>(index_.shards.size());
    const auto [place, is_new] = numbers_.try_emplace(name, next);
    if (is_new) index_.shards.push_back(name);
    return place->second;
  }

  void sort_entries() {
    std::vector<WeightIndex::Entry>& entries = index_.entries;
    std::sort(entries.begin(), entries.end(),
              [](auto& a, auto& b) { return a.tensor < b.tensor; });
    const auto twice = std::adjacent_find(
        entries.begin(), entries.end(),
        [](auto& a, auto& b) { return a.tensor == b.tensor; });
    if (twice != entries.end()) {
      refuse(cat("tensor ", quoted(twice->tensor), " comes twice"));
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](auto& a, auto& b) { return a.shard < b.shard; });
  }

  std::string file_;
  WeightIndex index_;
  std::map<std::string, uint32_t> numbers_;  // of shards
};

using Entries = std::vector<WeightIndex::Entry>;

// Both lists are sorted by name and must be equal.
void compare_names(Entries::const_iterator begin, Entries::const_iterator end,
                   const std::vector<std::string_view>& held,
                   const std::string& shard) {
  auto entry = begin;
  auto name = held.begin();
  while (entry != end && name != held.end() && entry->tensor == *name) {
    ++entry;
    ++name;
  }
  if (entry == end && name == held.end()) return;
  const bool lacks =
      name == held.end() || (entry != end && entry->tensor < *name);
  throw UsageError(
      lacks ? cat("shard ", quoted(shard), " lacks tensor ",
                  quoted(entry->tensor), ", which the index places there")
            : cat("shard ", quoted(shard), " holds tensor ", quoted(*name),
                  ", which the index does not place there"));
}

std::vector<std::string_view> names_of(const TensorRecords& records) {
  std::vector<std::string_view> names;
  names.reserve(records.size());
  for (const TensorRecord& record : records) names.push_back(record.name);
  return names;
}

}  // namespace

}  // namespace canzona

namespace canzona::shapes {

WeightIndex parse_weight_index(std::string_view json, const std::string& file) {
  return IndexReader(file).read(json);
}

void check_shard(const WeightIndex& index, uint32_t shard,
                 std::vector<std::string_view> held, const std::string& path) {
  const auto [begin, end] = std::equal_range(
      index.entries.begin(), index.entries.end(), WeightIndex::Entry{"", shard},
      [](const auto& a, const auto& b) { return a.shard < b.shard; });
  std::sort(held.begin(), held.end());
  compare_names(begin, end, held, path);
}

TensorRecords read_shards(const WeightIndex& index, const std::string& folder) {
  TensorRecords all;
  for (uint32_t shard = 0; shard < index.shards.size(); ++shard) {
    const std::string path =
        (std::filesystem::path(folder) / index.shards[shard]).string();
    TensorRecords records = read_safetensors_file(path);
    check_shard(index, shard, names_of(records), path);
    std::move(records.begin(), records.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace canzona::shapes
