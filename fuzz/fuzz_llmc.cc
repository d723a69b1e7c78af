// llm.c's files: refused with a UsageError, or every token can be read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/data/token_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto bytes = std::as_bytes(std::span(data, size));
    const canzona::data::PackedRegion found = canzona::data::llmc_tokens(
        bytes.first(std::min(size, canzona::data::kLlmcHeaderBytes)),
        static_cast<int64_t>(size), "x.bin");
    const canzona::data::PackedTokens tokens{
        bytes.subspan(static_cast<size_t>(found.begin),
                      static_cast<size_t>(found.bytes)),
        found.type};
    std::vector<int32_t> all(static_cast<size_t>(tokens.size()));
    tokens.read(0, all, {"x.bin", 50257});
  } catch (const canzona::UsageError&) {
  }
  return 0;
}
