// Hugging Face files for tests, written byte by byte without our own code.
//
//   folder.write("model.safetensors",
//                raw_safetensors({{"w", "F32", {2, 3}, bytes}}));
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace canzona::checkpoint {

struct RawTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

inline std::string with_length(const std::string& header,
                               const std::string& data) {
  std::string out;
  for (size_t i = 0; i < 8; ++i)
    out += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return out + header + data;
}

inline std::string raw_safetensors(const std::vector<RawTensor>& tensors) {
  std::string header = "{";
  std::string data;
  for (const RawTensor& tensor : tensors) {
    std::string shape;
    for (const int64_t dim : tensor.shape)
      shape += (shape.empty() ? "" : ", ") + std::to_string(dim);
    header += (header.size() > 1 ? ", \"" : "\"") + tensor.name +
              "\": {\"dtype\": \"" + tensor.dtype + "\", \"shape\": [" + shape +
              "], \"data_offsets\": [" + std::to_string(data.size()) + ", " +
              std::to_string(data.size() + tensor.bytes.size()) + "]}";
    data += tensor.bytes;
  }
  return with_length(header + "}", data);
}

template <class Number>
std::string raw_bytes(const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// {"weight_map": {tensor: shard, …}}
inline std::string raw_index(
    const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string map;
  for (const auto& [tensor, shard] : entries)
    map += (map.empty() ? "\"" : ", \"") + tensor + "\": \"" + shard + "\"";
  return R"({"metadata": {"total_size": 1}, "weight_map": {)" + map + "}}";
}

}  // namespace canzona::checkpoint
