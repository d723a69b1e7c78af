#include "canzona/shapes/siblings.h"

#include <algorithm>
#include <numeric>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/shapes/names.h"

namespace canzona {
namespace {

// `name` with the last `word` replaced; empty if it has none.
std::string replaced(const std::string& name, std::string_view word,
                     std::string_view by) {
  const size_t place = name.rfind(word);
  if (place == std::string::npos) return {};
  return std::string(name).replace(place, word.size(), by);
}

// The first mlp matrix's name → the second's.
std::string down_name(const std::string& name, Projection projection) {
  std::string second = projection == Projection::kFc1
                           ? replaced(name, "fc1", "fc2")
                           : replaced(name, "gate_up", "down");
  if (second.rfind("bias") == std::string::npos) return second;
  return replaced(second, "bias", "weight");
}

std::string first_name(const std::string& name) {
  const std::string fc1 = replaced(name, "fc2", "fc1");
  return fc1.empty() ? replaced(name, "down", "gate_up") : fc1;
}

// [E, a, b] and [E, c, d] as first and second matrix of experts that lie
// transposed: (in, 2 x out) and (out, in).
bool lie_transposed(const TensorRecord& first, const TensorRecord& second) {
  return first.shape[2] == 2 * second.shape[1] &&
         first.shape[1] == second.shape[2];
}

bool is_transposed_pack(const TensorRecord& record, Projection projection,
                        const RecordIndex& index) {
  const bool is_down = projection == Projection::kDown;
  const TensorRecord* other = index.find(
      is_down ? first_name(record.name) : down_name(record.name, projection));
  if (other == nullptr || !is_expert_pack(*other)) return false;
  return is_down ? lie_transposed(*other, record)
                 : lie_transposed(record, *other);
}

}  // namespace

RecordIndex::RecordIndex(const TensorRecords& records, const std::string& file)
    : records_(records), by_name_(records.size()) {
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  std::sort(by_name_.begin(), by_name_.end(), [&](uint32_t a, uint32_t b) {
    return records[a].name < records[b].name;
  });
  const auto twice = std::adjacent_find(
      by_name_.begin(), by_name_.end(), [&](uint32_t a, uint32_t b) {
        return records[a].name == records[b].name;
      });
  if (twice != by_name_.end()) {
    throw UsageError(cat(printable(file), ": tensor ",
                         quoted(records[*twice].name), " comes twice"));
  }
}

const TensorRecord* RecordIndex::find(const std::string& name) const {
  const auto place = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [this](uint32_t i, const std::string& n) {
                                        return records_[i].name < n;
                                      });
  if (place == by_name_.end() || records_[*place].name != name) return nullptr;
  return &records_[*place];
}

bool is_expert_pack(const TensorRecord& record) {
  return record.shape.size() == 3 &&
         expert_number_place(record.name) != std::string::npos;
}

Rows rows_of(const TensorRecord& record, const RecordIndex& index) {
  const Projection projection = read_name(record.name).projection;
  const bool is_pack = is_expert_pack(record);
  if (record.shape.size() > 2 && !is_pack) return Rows::kPlain;
  const bool is_first =
      projection == Projection::kGateUp || projection == Projection::kFc1;
  if (is_pack && (is_first || projection == Projection::kDown) &&
      is_transposed_pack(record, projection, index)) {
    return Rows::kTransposed;
  }
  if (!is_first || record.shape.empty()) return Rows::kPlain;
  const int64_t rows = record.shape[is_pack ? 1 : 0];
  if (projection == Projection::kGateUp) {
    return rows % 2 == 0 ? Rows::kGateUp : Rows::kPlain;
  }
  const TensorRecord* down =
      index.find(down_name(record.name, Projection::kFc1));
  const bool gated = down != nullptr && down->shape.size() >= 2 &&
                     rows == 2 * down->shape.back();
  return gated ? Rows::kGateUp : Rows::kPlain;
}

}  // namespace canzona
