#include "canzona/comm/nccl/nccl_launch.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::comm {
namespace {

constexpr int kOldestThatShares = 23000;

}  // namespace

int choose_gpu(const LocalPlace& place, int num_gpus, bool share) {
  if (num_gpus < 1)
    throw UsageError(
        "no GPU is available to this process: there is none, there is no "
        "driver, or CUDA_VISIBLE_DEVICES hides them");
  if (share) return place.local_rank % num_gpus;
  if (num_gpus == 1) return 0;
  const int needed = std::max(place.num_local, place.local_rank + 1);
  if (needed > num_gpus)
    throw UsageError(cat("this machine has ", needed, " ranks and ", num_gpus,
                         " GPUs: start one rank per GPU, or let ranks share "
                         "them with share-gpu=on"));
  return place.local_rank;
}

std::vector<std::pair<std::string, std::string>> nccl_settings(
    const NcclSurroundings& surroundings, const Variables& variables) {
  std::vector<std::pair<std::string, std::string>> settings;
  const auto set = [&](const char* name, std::string value) {
    if (variables(name) == nullptr)
      settings.emplace_back(name, std::move(value));
  };
  set("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
  set("CUDA_MODULE_LOADING", "EAGER");
  if (!surroundings.share) return settings;
  if (surroundings.version >= kOldestThatShares) {
    set("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    return settings;
  }
  set("NCCL_HOSTID", cat(surroundings.host, "-", surroundings.rank));
  set("NCCL_SOCKET_IFNAME", "lo");
  set("NCCL_NET", "Socket");
  // Exchanges over sockets in NCCL's usual pieces of 128 KiB take up to 1.7
  // times as long.
  set("NCCL_P2P_NET_CHUNKSIZE", "524288");
  return settings;
}

}  // namespace canzona::comm

namespace canzona {
using namespace comm;

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
