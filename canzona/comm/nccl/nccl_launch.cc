#include "canzona/comm/nccl/nccl_launch.h"

#include <algorithm>
#include <array>
#include <thread>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/nccl/nccl_world.h"

namespace canzona {
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

namespace {

constexpr size_t kNumbersAlone = 16;

// Waits until the library has finished.
void finish_alone(NcclWorld& world, NcclComm* comm, const char* doing,
                  Deadline until) {
  while (!world.is_done(comm, doing)) {
    if (std::chrono::steady_clock::now() >= until)
      throw PeerLost(cat("NCCL: ", doing, " of a single rank did not end"));
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

class AloneMemory {
 public:
  explicit AloneMemory(const WireOps& ops)
      : ops_(ops), memory_(ops.allocate(kBytes)) {}
  ~AloneMemory() { ops_.release(memory_); }
  AloneMemory(const AloneMemory&) = delete;
  AloneMemory& operator=(const AloneMemory&) = delete;

  static constexpr auto kBytes =
      static_cast<int64_t>(kNumbersAlone * sizeof(int64_t));
  std::byte* data() const { return memory_; }

 private:
  const WireOps& ops_;
  std::byte* memory_;
};

double add_alone(NcclWorld& world, NcclComm* comm, Lane& lane, Deadline until) {
  constexpr int kTimes = 21;
  const AloneMemory memory(lane.ops());
  const std::unique_ptr<Mark> mark = lane.make_mark();
  const auto settle = [&] {
    lane.record(*mark);
    mark->wait();
  };
  std::array<int64_t, kNumbersAlone> numbers{}, found{};
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<int64_t>(i * i) - 7;
  lane.ops().copy(memory.data(),
                  reinterpret_cast<const std::byte*>(numbers.data()),
                  AloneMemory::kBytes);
  settle();
  std::vector<double> times;
  for (int i = 0; i < kTimes; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    world.call([&](const NcclApi& nccl) {
      world.require(nccl.all_reduce(memory.data(), memory.data(), kNumbersAlone,
                                    NcclType::kInt64, NcclReduction::kSum, comm,
                                    lane.native()),
                    "ncclAllReduce", comm);
    });
    finish_alone(world, comm, "ncclAllReduce", until);
    settle();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  lane.ops().copy(reinterpret_cast<std::byte*>(found.data()), memory.data(),
                  AloneMemory::kBytes);
  settle();
  if (found != numbers)
    throw InternalError("NCCL's sum of a single rank is not what it had");
  std::ranges::sort(times);
  return times[times.size() / 2];
}

}  // namespace

double nccl_alone_seconds(const NcclApi& nccl, Lane& lane,
                          std::chrono::nanoseconds time) {
  NcclWorld world(nccl, {}, 0);
  const Deadline until = deadline_after(time);
  NcclId id{};
  NcclComm* comm = nullptr;
  NcclConfig config;
  config.blocking = 0;
  world.call([&](const NcclApi& table) {
    world.require(table.get_unique_id(&id), "ncclGetUniqueId", nullptr);
    world.require(table.comm_init_rank_config(&comm, 1, id, 0, &config),
                  "ncclCommInitRankConfig", nullptr);
  });
  finish_alone(world, comm, "ncclCommInitRankConfig", until);
  const double seconds = add_alone(world, comm, lane, until);
  world.call([&](const NcclApi& table) {
    world.require(table.comm_finalize(comm), "ncclCommFinalize", comm);
  });
  finish_alone(world, comm, "ncclCommFinalize", until);
  world.call([&](const NcclApi& table) { table.comm_destroy(comm); });
  return seconds;
}

std::string nccl_network(std::string_view log) {
  constexpr std::array<std::string_view, 3> kBefore = {
      "Using network ", "Assigned NET plugin ", "Initialized NET plugin "};
  for (const std::string_view before : kBefore) {
    const size_t at = log.find(before);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = log.substr(at + before.size());
    return std::string(rest.substr(0, rest.find_first_of(" \r\n")));
  }
  return "";
}

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
