// Replaces NCCL in a build without it.
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/nccl/nccl_library.h"

namespace canzona {
namespace {

std::string why_no_nccl() {
  return cat("this build has no NCCL; install ", nccl_version_text(kOldestNccl),
             " or newer (libnccl-dev, or pip install nvidia-nccl-cu13) and "
             "build again with `make cuda`, or use ranks that are threads");
}

}  // namespace

bool nccl_is_built() { return false; }

std::string nccl_description() { return why_no_nccl(); }

const NcclApi& load_nccl() { throw UsageError(why_no_nccl()); }

}  // namespace canzona
