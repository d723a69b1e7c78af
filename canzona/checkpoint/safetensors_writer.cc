#include "canzona/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <set>
#include <string_view>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"

namespace canzona {
namespace {

constexpr int64_t kLengthBytes = 8;

void append_little_endian(std::string& out, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i)
    out += static_cast<char>(number >> (8 * i) & 0xFF);
}

// Adds the data's length to `bytes`.
void write_header_entry(JsonWriter& out, const TensorEntry& tensor,
                        int64_t& bytes) {
  const int64_t begin = bytes;
  bytes = checked_add(begin,
                      checked_mul(elements_of(tensor.shape),
                                  size_of(tensor.type), "bytes of a tensor"),
                      "bytes of a file");
  out.member(tensor.name).begin_object();
  out.field("dtype", name_of(tensor.type));
  out.member("shape").values(tensor.shape);
  out.member("data_offsets").values(std::vector<int64_t>{begin, bytes});
  out.end_object();
}

void require_different(const std::vector<TensorEntry>& tensors) {
  std::set<std::string_view> names = {"__metadata__"};
  for (const TensorEntry& tensor : tensors)
    if (!names.insert(tensor.name).second)
      throw UsageError(
          cat("safetensors: the name ", quoted(tensor.name), " comes twice"));
}

// A NaN keeps its upper bits, one of which is set, so that it does not become
// infinite.
uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000)
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

std::string encoded(std::span<const float> values, StoredType type) {
  std::string bytes;
  bytes.reserve(values.size() * static_cast<size_t>(size_of(type)));
  for (const float value : values) {
    if (type == StoredType::kF32)
      append_little_endian(bytes, std::bit_cast<uint32_t>(value), 4);
    else
      append_little_endian(bytes, to_bf16(value), 2);
  }
  return bytes;
}

}  // namespace

SafetensorsStart safetensors_start(
    const std::vector<TensorEntry>& tensors,
    const std::map<std::string, std::string>& metadata) {
  require_different(tensors);
  SafetensorsStart start;
  JsonWriter out;
  out.begin_object();
  if (!metadata.empty()) {
    out.member("__metadata__").begin_object();
    for (const auto& [key, text] : metadata) out.field(key, text);
    out.end_object();
  }
  int64_t data_bytes = 0;
  for (const TensorEntry& tensor : tensors) {
    start.offsets.push_back(data_bytes);
    write_header_entry(out, tensor, data_bytes);
  }
  std::string header = out.end_object().take();
  // Aligns the data for readers that map the file.
  header.resize(
      (header.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  append_little_endian(start.bytes, header.size(), kLengthBytes);
  start.bytes += header;
  for (int64_t& offset : start.offsets) offset += std::ssize(start.bytes);
  start.file_bytes =
      checked_add(std::ssize(start.bytes), data_bytes, "bytes of a file");
  return start;
}

SafetensorsWriter::SafetensorsWriter(
    const std::string& path, std::vector<TensorEntry> tensors,
    const std::map<std::string, std::string>& metadata)
    : tensors_(std::move(tensors)), file_(path) {
  for (const TensorEntry& tensor : tensors_)
    CANZONA_CHECK(
        tensor.type == StoredType::kF32 || tensor.type == StoredType::kBf16,
        tensor.name, ": no floats of type ", name_of(tensor.type));
  put(safetensors_start(tensors_, metadata).bytes);
  if (!tensors_.empty()) left_ = elements_of(tensors_[0].shape);
  skip_full_tensors();
}

void SafetensorsWriter::add(std::span<const float> values) {
  constexpr size_t kPiece = 1 << 16;
  while (!values.empty()) {
    CANZONA_CHECK(current_ < tensors_.size(), values.size(),
                  " elements more than the tensors have");
    const size_t count =
        std::min({values.size(), kPiece, static_cast<size_t>(left_)});
    put(encoded(values.first(count), tensors_[current_].type));
    values = values.subspan(count);
    left_ -= static_cast<int64_t>(count);
    skip_full_tensors();
  }
}

void SafetensorsWriter::put(std::string_view bytes) {
  hash_.add(bytes);
  file_.write(bytes);
}

void SafetensorsWriter::skip_full_tensors() {
  while (left_ == 0 && current_ < tensors_.size()) {
    if (++current_ < tensors_.size())
      left_ = elements_of(tensors_[current_].shape);
  }
}

std::string SafetensorsWriter::finish() {
  CANZONA_CHECK(current_ == tensors_.size(), "tensor ", tensors_[current_].name,
                " lacks ", left_, " elements");
  file_.finish();
  return hash_.hex();
}

}  // namespace canzona
