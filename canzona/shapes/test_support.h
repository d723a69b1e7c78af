// Helpers shared by the tests of this folder: messages of errors, and
// safetensors files made from names and shapes.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"
#include "canzona/base/text.h"
#include "canzona/shapes/records.h"

namespace canzona::shapes {

// Returns the message of the UsageError that `action` throws.
template <class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Length, header and, with `with_data`, zeros for the data.
inline std::string safetensors_bytes(std::string_view header,
                                     size_t data_bytes = 0) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  }
  bytes += header;
  bytes.append(data_bytes, '\0');
  return bytes;
}

// A file of I8 tensors in the order given.
inline std::string safetensors_file(const std::vector<TensorRecord>& records) {
  std::string header = "{";
  int64_t offset = 0;
  for (const TensorRecord& record : records) {
    int64_t size = 1;
    for (const int64_t dim : record.shape) size *= dim;
    header += cat(header.size() > 1 ? "," : "", "\"", record.name,
                  R"(":{"dtype":"I8","shape":)", shape_text(record.shape),
                  R"(,"data_offsets":[)", offset, ",", offset + size, "]}");
    offset += size;
  }
  return safetensors_bytes(header + "}", static_cast<size_t>(offset));
}

// A plain list of names and shapes.
inline std::string shapes_list(const std::vector<TensorRecord>& records) {
  std::string text = "[";
  for (const TensorRecord& record : records) {
    text += cat(text.size() > 1 ? "," : "", R"({"name":")", record.name,
                R"(","shape":)", shape_text(record.shape), "}");
  }
  return text + "]";
}

template <class Item>
std::vector<Item> shuffled(std::vector<Item> items, unsigned seed) {
  std::mt19937 random(seed);
  std::shuffle(items.begin(), items.end(), random);
  return items;
}

}  // namespace canzona::shapes
