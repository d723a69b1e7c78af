#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/comm/nccl/nccl_library.h"

namespace canzona {

std::string nccl_version_text(int version) {
  return cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

int nccl_version_of(const NcclApi& nccl) {
  int version = 0;
  CANZONA_CHECK(nccl.get_version(&version) == NcclResult::kSuccess,
                "ncclGetVersion");
  return version;
}

}  // namespace canzona
