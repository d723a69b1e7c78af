// Measures what safety costs: saves and loads checkpoints of so many MiB (1024)
// beside plain writes and reads of the same files in the same run, and prints
// ratios:
//
//   build/bench/checkpoints [FOLDER [MIB]]
//
// FOLDER, which is made and removed, lies in the folder for temporary files
// unless it is named.
//
// save : write     a checkpoint (SHA-256, checksums, fsync, commit) beside
//                  write() and fsync() of the same bytes
// load : cat       every byte checked, into memory that is there, beside read()
//                  of the files into a small buffer, as `cat` does it; both
//                  from the page cache
// reshard : load   four ranks' files read as three ranks need them
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "canzona/base/random.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/shard_writer.h"
#include "canzona/checkpoint/store.h"

namespace canzona {
namespace {

constexpr int kTrials = 5;
constexpr int64_t kRanks = 4;
constexpr int64_t kColumns = 4096;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

// The least of some trials: others use the machine, too.
double least(const std::function<double()>& trial) {
  double best = trial();
  for (int i = 1; i < kTrials; ++i) best = std::min(best, trial());
  return best;
}

void plain_write(const std::string& path, std::span<const std::byte> bytes) {
  constexpr size_t kPiece = 4 << 20;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  while (!bytes.empty()) {
    const size_t count = std::min(kPiece, bytes.size());
    if (::write(file, bytes.data(), count) != static_cast<ssize_t>(count))
      std::abort();
    bytes = bytes.subspan(count);
  }
  if (::fsync(file) != 0 || ::close(file) != 0) std::abort();
}

void plain_read(const std::string& path) {
  static std::vector<std::byte> buffer(128 << 10);  // as coreutils' cat
  const int file = ::open(path.c_str(), O_RDONLY);
  while (::read(file, buffer.data(), buffer.size()) > 0) {
  }
  ::close(file);
}

LogicalTensor tensor_of(int64_t bytes) {
  return {"model/w", DType::kFp32, {bytes / 4 / kColumns, kColumns}};
}

// Rows of rank `rank` of `ranks`.
Box rows_of(const LogicalTensor& tensor, int64_t rank, int64_t ranks) {
  const int64_t first = tensor.shape[0] * rank / ranks;
  return {{first, 0}, {tensor.shape[0] * (rank + 1) / ranks - first, kColumns}};
}

void save(CheckpointStore& store, int64_t step, const LogicalTensor& tensor,
          std::span<const std::byte> data, int64_t ranks) {
  PendingCheckpoint pending = store.begin(step);
  std::vector<std::string> records;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const Box box = rows_of(tensor, rank, ranks);
    records.push_back(write_shard(
        pending.folder(), {step, rank, ranks},
        {{tensor, box,
          data.subspan(static_cast<size_t>(box.first[0] * kColumns * 4),
                       static_cast<size_t>(bytes_of(tensor, box)))}}));
  }
  pending.commit(records, "");
}

void run_checkpoints(const std::string& folder, int64_t mib) {
  const int64_t bytes = mib << 20;
  const LogicalTensor tensor = tensor_of(bytes);
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  for (size_t i = 0; i < data.size(); i += 8)
    data[i] = static_cast<std::byte>(bits_at(1, i));
  const int cores =
      static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
  std::filesystem::create_directories(folder);
  const std::string plain = folder + "/plain";

  // By turns, so that both see the same disk.
  double write_s = 1e9;
  double save_s = 1e9;
  {
    CheckpointStore store(folder + "/ckpt", "bench");
    for (int i = 0; i < kTrials; ++i) {
      std::filesystem::remove(plain);
      write_s =
          std::min(write_s, seconds_of([&] { plain_write(plain, data); }));
      std::filesystem::remove(plain);
      std::filesystem::remove_all(folder + "/ckpt/step_00000001");
      save_s = std::min(save_s,
                        seconds_of([&] { save(store, 1, tensor, data, 1); }));
    }
    save(store, 2, tensor, data, kRanks);
  }
  std::printf("save %lld MiB: write %.3f s, save %.3f s, ratio %.2f\n",
              static_cast<long long>(mib), write_s, save_s, save_s / write_s);

  const std::string shard = "/rank_00000.safetensors";
  const double cat_s = least([&] {
    return seconds_of(
        [&] { plain_read(folder + "/ckpt/step_00000001" + shard); });
  });
  const CheckpointReader one = open_checkpoint(folder + "/ckpt/step_00000001");
  for (const int threads : {1, cores}) {
    for (const bool check : {false, true}) {
      const double load_s = least([&] {
        return seconds_of([&] {
          one.load({{tensor.name, whole_box(tensor.shape), data}},
                   {.threads = threads, .check = check});
        });
      });
      std::printf(
          "load, %d thread(s), %s: cat %.3f s, load %.3f s, ratio %.2f\n",
          threads, check ? "checked" : "unchecked", cat_s, load_s,
          load_s / cat_s);
    }
  }
  const CheckpointReader four = open_checkpoint(folder + "/ckpt/step_00000002");
  const auto load_as = [&](int64_t ranks) {
    return seconds_of([&] {
      size_t at = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const Box box = rows_of(tensor, rank, ranks);
        const auto count = static_cast<size_t>(bytes_of(tensor, box));
        four.load({{tensor.name, box, std::span(data).subspan(at, count)}},
                  {.threads = cores});
        at += count;
      }
    });
  };
  const double same_s = least([&] { return load_as(4); });
  const double other_s = least([&] { return load_as(3); });
  std::printf("reshard: 4 to 4 %.3f s, 4 to 3 %.3f s, ratio %.2f\n", same_s,
              other_s, other_s / same_s);
  const double verify_s =
      least([&] { return seconds_of([&] { (void)four.verify(cores); }); });
  std::printf("verify: %.3f s, %.2f GB/s\n", verify_s,
              static_cast<double>(bytes) / verify_s / 1e9);
  std::filesystem::remove_all(folder + "/ckpt");
  std::filesystem::remove(folder);
}

}  // namespace
}  // namespace canzona

int main(int argc, char** argv) {
  const std::string folder =
      argc > 1 ? argv[1]
               : (std::filesystem::temp_directory_path() /
                  ("canzona_checkpoints_" + std::to_string(::getpid())))
                     .string();
  const int64_t mib = argc > 2 ? std::atoll(argv[2]) : 1024;
  if (folder.starts_with('-') || mib < 1 || std::filesystem::exists(folder)) {
    std::fprintf(stderr, "usage: checkpoints [FOLDER [MIB]], a new folder\n");
    return 2;
  }
  canzona::run_checkpoints(folder, mib);
}
