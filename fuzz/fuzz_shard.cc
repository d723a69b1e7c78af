// Headers of shards, as a reader of data takes them: refused with a UsageError,
// or every tensor lies inside the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "canzona/base/error.h"
#include "canzona/shapes/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto file_size = static_cast<int64_t>(size);
  try {
    const canzona::shapes::SafetensorsHeader header =
        canzona::shapes::read_safetensors_header(bytes, file_size,
                                                 "rank_00000.safetensors");
    for (const canzona::shapes::StoredTensor& tensor : header.tensors)
      if (tensor.begin < 8 || tensor.end < tensor.begin ||
          tensor.end > file_size)
        std::abort();
  } catch (const canzona::UsageError&) {
  }
  return 0;
}
