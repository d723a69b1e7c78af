#include "canzona/measure/surroundings.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

using SurroundingsClock = std::chrono::steady_clock;

double seconds_since(SurroundingsClock::time_point begin) {
  return std::chrono::duration<double>(SurroundingsClock::now() - begin)
      .count();
}

// A file that its destructor removes.
class TrialFile {
 public:
  explicit TrialFile(std::string path)
      : path_(std::move(path)),
        file_(::open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC,
                     0600)) {
    if (file_ < 0) fail("cannot be made");
  }
  ~TrialFile() {
    if (file_ >= 0) ::close(file_);
    ::unlink(path_.c_str());
  }
  TrialFile(const TrialFile&) = delete;
  TrialFile& operator=(const TrialFile&) = delete;

  void write(std::span<const char> bytes) {
    while (!bytes.empty()) {
      const ssize_t done = ::write(file_, bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail("cannot be written");
      bytes = bytes.subspan(static_cast<size_t>(done));
    }
  }
  void sync() {
    if (::fsync(file_) != 0) fail("cannot be synced");
  }
  void rename(const std::string& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0) fail("cannot be renamed");
    path_ = path;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw Error(
        cat(path_, " ", what, ": ", std::generic_category().message(errno)));
  }
  std::string path_;
  int file_;
};

void time_writes(const std::string& path, int64_t bytes, DiskInfo& disk) {
  const std::vector<char> piece(size_t{4} << 20, 'c');
  TrialFile file(path);
  const auto begin = SurroundingsClock::now();
  for (int64_t left = bytes; left > 0;
       left -= static_cast<int64_t>(piece.size()))
    file.write(std::span(piece).first(
        std::min(piece.size(), static_cast<size_t>(left))));
  file.sync();
  disk.write_bytes_per_second =
      static_cast<double>(bytes) / std::max(seconds_since(begin), 1e-9);
}

void time_commit(const std::string& path, DiskInfo& disk) {
  constexpr int kTimes = 5;
  constexpr std::string_view kText = "a small file\n";
  std::vector<double> times;
  for (int i = 0; i < kTimes; ++i) {
    const auto begin = SurroundingsClock::now();
    TrialFile file(path);
    file.write(kText);
    file.sync();
    file.rename(path + ".done");
    times.push_back(seconds_since(begin));
  }
  std::ranges::sort(times);
  disk.commit_seconds = times[kTimes / 2];
}

int64_t limit_value(rlim_t limit) {
  return limit == RLIM_INFINITY ? -1 : static_cast<int64_t>(limit);
}

// Rank r sends rank p a byte that identifies both. Messages are in memory of
// the lane's device, or of this process.
class TinyExchange {
 public:
  TinyExchange(Communicator& world, std::shared_ptr<Lane> lane)
      : lane_(std::move(lane)), num_(world.size()) {
    if (lane_ == nullptr) return;
    group_ = world.split_ordered(0, world.rank(), "doctor", lane_);
    memory_ = lane_->ops().allocate(2 * num_);
    mark_ = lane_->make_mark();
  }
  ~TinyExchange() {
    if (memory_ != nullptr) lane_->ops().release(memory_);
  }
  TinyExchange(const TinyExchange&) = delete;
  TinyExchange& operator=(const TinyExchange&) = delete;

  void run(Communicator& world) {
    const auto n = static_cast<size_t>(num_);
    const auto told = [](size_t from, size_t to) {
      return static_cast<std::byte>(from * 31 + to * 7 + 1);
    };
    std::vector<std::byte> sent(n), received(n);
    const auto own = static_cast<size_t>(world.rank());
    for (size_t p = 0; p < n; ++p) sent[p] = told(own, p);
    if (lane_ == nullptr) {
      exchange(world, sent, received);
    } else {
      lane_->ops().copy(memory_, sent.data(), num_);
      exchange(*group_, {memory_, n}, {memory_ + n, n});
      lane_->ops().copy(received.data(), memory_ + n, num_);
      lane_->record(*mark_);
      mark_->wait();
    }
    for (size_t p = 0; p < n; ++p)
      if (received[p] != told(p, own))
        throw InternalError(cat("a tiny all-to-all: rank ", own,
                                " got a wrong byte from rank ", p));
  }

 private:
  static void exchange(Communicator& group, std::span<std::byte> sent,
                       std::span<std::byte> received) {
    std::vector<int64_t> bytes(sent.size(), 1), offsets(sent.size());
    std::iota(offsets.begin(), offsets.end(), 0);
    group.all_to_all_v({sent, bytes, offsets}, {received, bytes, offsets},
                       {.label = "doctor"});
  }

  std::shared_ptr<Lane> lane_;
  const int64_t num_;
  std::unique_ptr<Communicator> group_;
  std::byte* memory_ = nullptr;
  std::unique_ptr<Mark> mark_;
};

}  // namespace

DiskInfo measure_disk(const std::string& folder, int64_t bytes) {
  DiskInfo disk{.folder = folder};
  std::error_code unknown;
  const auto space = std::filesystem::space(folder, unknown);
  if (!unknown) disk.free_bytes = static_cast<int64_t>(space.available);
  const std::string path =
      cat(folder, "/.canzona-doctor-", static_cast<int64_t>(::getpid()));
  try {
    if (disk.free_bytes >= 0 && disk.free_bytes < 2 * bytes)
      throw Error(cat("only ", human_bytes(disk.free_bytes), " are free"));
    time_writes(path, bytes, disk);
    time_commit(path, disk);
  } catch (const std::exception& error) {
    disk.problem = error.what();
  }
  return disk;
}

std::vector<ProcessLimit> process_limits() {
  struct Kind {
    const char* name;
    const char* unit;
    int resource;
  };
  std::vector<ProcessLimit> limits;
  for (const Kind& kind : {Kind{"open files", "", RLIMIT_NOFILE},
                           Kind{"locked memory", "bytes", RLIMIT_MEMLOCK},
                           Kind{"core file", "bytes", RLIMIT_CORE},
                           Kind{"stack", "bytes", RLIMIT_STACK}}) {
    struct rlimit limit {};
    if (::getrlimit(static_cast<__rlimit_resource_t>(kind.resource), &limit) ==
        0)
      limits.push_back({kind.name, kind.unit, limit_value(limit.rlim_cur),
                        limit_value(limit.rlim_max)});
  }
  return limits;
}

std::string sigpipe_state() {
  struct sigaction action {};
  ::sigaction(SIGPIPE, nullptr, &action);
  if (action.sa_handler == SIG_IGN) return "ignored";
  return action.sa_handler == SIG_DFL ? "default" : "caught";
}

ExchangeInfo measure_exchange(
    const std::string& transport, const RankRunner& run, int num_ranks,
    const std::function<std::shared_ptr<Lane>()>& make_lane) {
  constexpr int kTimes = 101;
  ExchangeInfo info{.transport = transport, .num_ranks = num_ranks};
  try {
    info.seconds = on_every_rank(run, {}, [&](Communicator& world) {
      TinyExchange exchange(world, make_lane ? make_lane() : nullptr);
      std::vector<double> times;
      for (int i = 0; i < kTimes; ++i) {
        const auto begin = SurroundingsClock::now();
        exchange.run(world);
        times.push_back(seconds_since(begin));
      }
      std::ranges::sort(times);
      return times[kTimes / 2];
    });
  } catch (const std::exception& error) {
    info.problem = error.what();
  }
  return info;
}

}  // namespace canzona
