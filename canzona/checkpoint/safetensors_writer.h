// Writes a safetensors file tensor by tensor: the contents are declared first,
// then the data is added in that order, and only a piece of it is in memory.
//
//   SafetensorsWriter file("model.safetensors",
//                          {{"a", StoredType::kF32, {2, 3}}, …}, {});
//   file.add(values);        // of "a"
//   …
//   file.finish();
//
// Until finish() there is no file, or still the old one. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/digest.h"
#include "canzona/base/files.h"
#include "canzona/checkpoint/boxes.h"

namespace canzona {

struct TensorEntry {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
};

// The beginning of a file: its header's length and its header. The data
// of the tensors follows in their order.
struct SafetensorsStart {
  std::string bytes;
  std::vector<int64_t> offsets;  // of each tensor's data, from the start of the
                                 // file
  int64_t file_bytes = 0;        // with all data
};

// `metadata` goes to "__metadata__". Throws UsageError if a name occurs twice.
SafetensorsStart safetensors_start(
    const std::vector<TensorEntry>& tensors,
    const std::map<std::string, std::string>& metadata);

class SafetensorsWriter {
 public:
  // Supports only F32 and BF16. Throws UsageError if a name occurs twice or the
  // file cannot be written.
  SafetensorsWriter(const std::string& path, std::vector<TensorEntry> tensors,
                    const std::map<std::string, std::string>& metadata);

  // Appends elements, row-major; a tensor may come in several pieces. Bf16 is
  // rounded to nearest, ties to even.
  void add(std::span<const float> values);
  // Returns the SHA-256 of the file, as sha256sum prints it. Throws
  // InternalError if elements are missing.
  std::string finish();

 private:
  void put(std::string_view bytes);
  void skip_full_tensors();

  std::vector<TensorEntry> tensors_;
  size_t current_ = 0;
  int64_t left_ = 0;  // elements of the current tensor still to come
  FileWriter file_;
  Sha256 hash_;
};

}  // namespace canzona
