// Megatron's indices: refused with a UsageError, or every run of tokens lies
// inside the .bin. Its size is taken from the last bytes of the input.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "canzona/base/error.h"
#include "canzona/data/token_source.h"

namespace {

void check(const canzona::data::MegatronIndex& index, int64_t bin_bytes) {
  const int64_t width = canzona::data::packed_width(index.type);
  for (size_t i = 0; i < index.runs.size(); ++i) {
    const bool last = i + 1 == index.runs.size();
    const int64_t end = last ? index.num_tokens : index.runs[i + 1].first;
    const int64_t tokens = end - index.runs[i].first;
    if (tokens <= 0 || index.runs[i].byte < 0) std::abort();
    if (index.runs[i].byte > bin_bytes - tokens * width) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint32_t bin_bytes = 0;
  if (size < sizeof bin_bytes) return 0;
  size -= sizeof bin_bytes;
  std::memcpy(&bin_bytes, data + size, sizeof bin_bytes);
  try {
    check(canzona::data::megatron_index(std::as_bytes(std::span(data, size)),
                                        bin_bytes, "x.idx"),
          bin_bytes);
  } catch (const canzona::UsageError&) {
  }
  return 0;
}
