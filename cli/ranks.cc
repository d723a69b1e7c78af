#include "cli/ranks.h"

#include <fstream>
#include <mutex>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::cli {
namespace {

class ThreadRanks : public Ranks {
 public:
  explicit ThreadRanks(const RankOptions& options) : options_(options) {}

  std::string transport() const override { return "thread"; }
  RankRunner runner() override {
    return on_threads(options_.num_ranks, options_.communicator);
  }

 private:
  RankOptions options_;
};

// All ranks of this process write to one file, one after the other.
void write_flights_to(const std::string& path, CommunicatorOptions& options) {
  auto mutex = std::make_shared<std::mutex>();
  options.on_failure = [path, mutex](const FlightRecord& record) {
    const std::lock_guard lock(*mutex);
    std::ofstream file(path, std::ios::app);
    record.write(file);
  };
}

}  // namespace

std::unique_ptr<Ranks> make_ranks(const RankOptions& options) {
  RankOptions own = options;
  if (!own.flight_record.empty())
    write_flights_to(own.flight_record, own.communicator);
  if (own.transport.empty() || own.transport == "thread")
    return std::make_unique<ThreadRanks>(own);
  throw UsageError(cat("--transport ", quoted(own.transport),
                       ": expected thread or mpi",
                       did_you_mean(own.transport, {"thread", "mpi"})));
}

}  // namespace canzona::cli
