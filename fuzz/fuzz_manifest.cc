// Manifests of checkpoints: refused with a UsageError, or read and written back
// as the same. The hash at the end is made right, so that what is behind it is
// reached, too; the input as it is must be refused or right.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/checkpoint/manifest.h"

namespace {

void read(const std::string& text) {
  try {
    const canzona::checkpoint::Manifest manifest =
        canzona::checkpoint::parse_manifest(text, "manifest.json");
    if (manifest.version == canzona::checkpoint::kCheckpointVersion &&
        canzona::checkpoint::parse_manifest(
            canzona::checkpoint::manifest_text(manifest), "again") != manifest)
      std::abort();
  } catch (const canzona::UsageError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  const std::string_view tail = ",\"sha256\":\"";
  const std::string body = text.substr(0, text.rfind(tail));
  read(body + std::string(tail) + canzona::sha256_hex(body) + "\"}\n");
  return 0;
}
