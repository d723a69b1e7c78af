#include "canzona/shapes/weight_index.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/shapes/json_events.h"
#include "canzona/shapes/safetensors.h"

namespace canzona {
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
                 quoted(text), ", which is no plain file name"));
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

// Both lists are in order of names; they must be equal.
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

std::vector<std::string_view> sorted_names(const TensorRecords& records) {
  std::vector<std::string_view> names;
  names.reserve(records.size());
  for (const TensorRecord& record : records) names.push_back(record.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

WeightIndex parse_weight_index(std::string_view json, const std::string& file) {
  IndexReader reader(file);
  reader.read(json);
  return reader.take();
}

TensorRecords read_shards(const WeightIndex& index, const std::string& folder) {
  TensorRecords all;
  auto begin = index.entries.begin();
  for (uint32_t shard = 0; shard < index.shards.size(); ++shard) {
    const auto end =
        std::find_if(begin, index.entries.end(),
                     [shard](auto& entry) { return entry.shard != shard; });
    const std::string path =
        (std::filesystem::path(folder) / index.shards[shard]).string();
    TensorRecords records = read_safetensors_file(path);
    compare_names(begin, end, sorted_names(records), path);
    std::move(records.begin(), records.end(), std::back_inserter(all));
    begin = end;
  }
  return all;
}

}  // namespace canzona
