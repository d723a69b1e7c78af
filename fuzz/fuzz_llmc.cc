// llm.c's files: refused with a UsageError, or every token can be read.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/data/llmc.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const canzona::PackedTokens tokens =
        canzona::llmc_tokens(std::as_bytes(std::span(data, size)), "x.bin");
    std::vector<int32_t> all(static_cast<size_t>(tokens.size()));
    tokens.read(0, all, {"x.bin", 50257});
  } catch (const canzona::UsageError&) {
  }
  return 0;
}
