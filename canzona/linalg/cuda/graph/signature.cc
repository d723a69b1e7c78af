#include "canzona/linalg/cuda/graph/signature.h"

#include <algorithm>
#include <cstring>

namespace canzona {

void Signature::add(std::string_view text) {
  add_bytes(std::as_bytes(std::span(text)));
}

void Signature::add_bytes(std::span<const std::byte> bytes) {
  mix(bytes.size());
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t size = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), size);
    mix(word);
    bytes = bytes.subspan(size);
  }
}

}  // namespace canzona
