#include "canzona/shapes/safetensors.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/shapes/read_model.h"

namespace canzona {
namespace {

constexpr std::array<std::pair<std::string_view, int>, 20> kTypes = {{
    {"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
    {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},
    {"F32", 32}, {"F64", 64},    {"I64", 64},    {"U64", 64},    {"C64", 64},
}};

const std::vector<std::string>& fields() {
  static const std::vector<std::string> names = {"dtype", "shape",
                                                 "data_offsets"};
  return names;
}

enum Field { kDtype, kShape, kOffsets, kNumFields };

struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
  std::string_view type;
};

enum class Metadata { kDrop, kKeep };

// {"__metadata__": {"k": "v"}, "x": {"dtype": "F32", "shape": [2, 3],
// "data_offsets": [0, 24]}, …}: depth 1 is the header, 2 an entry, 3 a list.
class HeaderReader : public JsonEvents {
 public:
  HeaderReader(const std::string& file, Metadata metadata)
      : JsonEvents(file), keeps_metadata_(metadata == Metadata::kKeep) {}

  TensorRecords take() { return std::move(records_); }

  // `data_begin` is the byte of the file at which data begins.
  SafetensorsHeader take_all(int64_t data_begin) {
    SafetensorsHeader header;
    header.metadata.insert(std::make_move_iterator(metadata_.begin()),
                           std::make_move_iterator(metadata_.end()));
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
  void on_open(char bracket) override {
    if (depth() == 1 && bracket == '{') return;
    if (depth() == 2 && bracket == '{') return begin_entry();
    if (depth() == 3 && bracket == '[' && !in_metadata_ &&
        (field_ == kShape || field_ == kOffsets)) {
      return;
    }
    refuse(cat(where(), ": unexpected '", bracket, "'"));
  }

  void on_close() override {
    if (depth() == 2 && !in_metadata_) end_entry();
    if (depth() == 2 && in_metadata_) end_metadata();
  }

  void on_key(std::string& key) override {
    if (depth() == 1) {
      in_metadata_ = key == "__metadata__";
      record_.name = std::move(key);
    } else if (in_metadata_) {
      metadata_.emplace_back(std::move(key), "");
    } else {
      begin_field(key);
    }
  }

  void on_string(std::string& text) override {
    if (depth() == 2 && in_metadata_) {
      if (keeps_metadata_) metadata_.back().second = std::move(text);
      return;
    }
    if (depth() != 2 || field_ != kDtype) {
      refuse(cat(where(), ": unexpected string ", quoted(text)));
    }
    const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&](auto& t) { return t.first == text; });
    if (type == kTypes.end()) {
      refuse(cat(where(), ": unknown dtype ", quoted(text)));
    }
    type_ = *type;
  }

  void on_integer(int64_t number) override {
    if (depth() != 3) refuse(cat(where(), ": unexpected number ", number));
    std::vector<int64_t>& list = field_ == kShape ? record_.shape : offsets_;
    if (list.size() == size_t{kMaxDims}) {
      refuse(cat(where(), ": more than ", kMaxDims, " numbers in ",
                 fields()[field_]));
    }
    list.push_back(number);
  }

  void on_other(std::string_view kind) override {
    refuse(cat(where(), ": unexpected ", kind));
  }

  void begin_entry() {
    if (in_metadata_ && std::exchange(has_metadata_, true)) {
      refuse("__metadata__ comes twice");
    }
    if (records_.size() == size_t{kMaxTensors}) {
      refuse(cat("more than ", kMaxTensors, " tensors"));
    }
    record_.shape.clear();
    offsets_.clear();
    seen_.reset();
    field_ = kNumFields;
  }

  void begin_field(const std::string& key) {
    size_t field = 0;
    while (field < kNumFields && fields()[field] != key) ++field;
    if (field == kNumFields) {
      refuse(cat(where(), ": unknown key ", quoted(key),
                 did_you_mean(key, fields())));
    }
    if (seen_[field]) refuse(cat(where(), ": key '", key, "' comes twice"));
    seen_[field] = true;
    field_ = static_cast<Field>(field);
  }

  void end_entry() {
    for (size_t field = 0; field < kNumFields; ++field) {
      if (!seen_[field]) {
        refuse(cat(where(), ": key '", fields()[field], "' is missing"));
      }
    }
    check_record(record_, file());
    check_bytes();
    extents_.push_back({offsets_[0], offsets_[1], type_.first});
    records_.push_back(record_);
  }

  void check_bytes() const {
    if (offsets_.size() != 2 || offsets_[0] < 0 || offsets_[1] < offsets_[0]) {
      refuse(cat(where(), ": data_offsets ", shape_text(offsets_),
                 " are not a valid [begin, end]"));
    }
    int64_t bits = type_.second;
    for (const int64_t dim : record_.shape) {
      bits = checked_mul(bits, dim, "bits of a tensor");
    }
    // Compared in bytes, because eight times an offset may overflow.
    const int64_t bytes = offsets_[1] - offsets_[0];
    if (bits % 8 != 0 || bits / 8 != bytes) {
      refuse(cat(where(), ": data_offsets ", shape_text(offsets_), " hold ",
                 bytes, " bytes, shape ", shape_text(record_.shape), " of ",
                 type_.first, " needs ", bits, " bits"));
    }
  }

  void end_metadata() {
    std::sort(metadata_.begin(), metadata_.end());
    const auto twice = std::adjacent_find(
        metadata_.begin(), metadata_.end(),
        [](const auto& a, const auto& b) { return a.first == b.first; });
    if (twice != metadata_.end()) {
      refuse(cat("__metadata__: key ", quoted(twice->first), " comes twice"));
    }
    if (!keeps_metadata_) metadata_ = {};
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

  std::string where() const {
    if (depth() == 0) return "header";
    if (in_metadata_) return "__metadata__ (text to text)";
    return cat("tensor ", quoted(record_.name));
  }

  TensorRecords records_;
  std::vector<Extent> extents_;  // of records_, in the same order
  TensorRecord record_;
  std::vector<int64_t> offsets_;
  std::pair<std::string_view, int> type_;
  std::bitset<kNumFields> seen_;
  Field field_ = kNumFields;
  bool in_metadata_ = false;
  bool has_metadata_ = false;
  bool keeps_metadata_;
  std::vector<std::pair<std::string, std::string>> metadata_;
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

// Depth 1 is the index, 2 the map; everything else is skipped.
class IndexReader : public JsonEvents {
 public:
  explicit IndexReader(const std::string& file) : JsonEvents(file) {}

  WeightIndex take() {
    if (!keys_.contains("weight_map")) refuse("key 'weight_map' is missing");
    if (index_.entries.empty()) refuse("weight_map lists no tensors");
    sort_entries();
    return std::move(index_);
  }

 private:
  void on_open(char bracket) override {
    if (depth() == 1 && bracket != '{') refuse("expected an object");
    if (!in_map_) return;
    if (depth() != 2 || bracket != '{') {
      refuse(cat("weight_map: unexpected '", bracket, "'"));
    }
  }

  void on_close() override {
    if (depth() == 2) in_map_ = false;
  }

  void on_key(std::string& key) override {
    if (depth() == 1) {
      in_map_ = key == "weight_map";
      if (!keys_.insert(key).second) {
        refuse(cat("key ", quoted(key), " comes twice"));
      }
    } else if (in_map_) {
      tensor_ = std::move(key);
    }
  }

  void on_string(std::string& text) override {
    if (!in_map_) return expect_inside();
    if (depth() != 2) refuse("weight_map must be an object");
    if (!is_plain_file_name(text)) {
      refuse(cat("weight_map: tensor ", quoted(tensor_), " lies in ",
                 quoted(text), ", which is not a plain file name"));
    }
    if (index_.entries.size() == size_t{kMaxTensors}) {
      refuse(cat("more than ", kMaxTensors, " tensors"));
    }
    index_.entries.push_back({std::move(tensor_), shard_number(text)});
  }

  void on_integer(int64_t) override { on_other("number"); }

  void on_other(std::string_view kind) override {
    if (in_map_) {
      refuse(cat("weight_map: tensor ", quoted(tensor_), ": unexpected ", kind,
                 ", expected the name of a file"));
    }
    expect_inside();
  }

  void expect_inside() const {
    if (depth() == 0) refuse("expected an object");
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
      refuse(cat("weight_map: tensor ", quoted(twice->tensor), " comes twice"));
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](auto& a, auto& b) { return a.shard < b.shard; });
  }

  WeightIndex index_;
  std::map<std::string, uint32_t> numbers_;  // of shards
  std::set<std::string> keys_;               // of the index itself
  std::string tensor_;
  bool in_map_ = false;
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

WeightIndex parse_weight_index(std::string_view json, const std::string& file) {
  IndexReader reader(file);
  reader.read(json);
  return reader.take();
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

}  // namespace canzona
