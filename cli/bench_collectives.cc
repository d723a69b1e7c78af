// `canzona bench collectives`: how long operations between ranks take.
#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/nccl/nccl_library.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/report/bench/collectives_report.h"
#include "cli/bench.h"
#include "cli/options.h"
#include "cli/ranks.h"

namespace canzona::cli {
namespace {

constexpr const char* kBenchCollectivesExamples =
    R"(Examples:
  canzona bench collectives --ranks 4 --bytes 64MiB
  mpirun -n 4 canzona bench collectives --ranks 4 --json
  mpirun -n 8 canzona bench collectives --ranks 8 --device cuda --bytes 256MiB
  mpirun -n 4 canzona bench collectives --ranks 4 --device cuda --share-gpu

Every operation, with pieces of equal and of unequal counts: gathers, all-to-all, sums of
fp32 in the one order that gives the same bits everywhere (`exact`), and by the library
behind the transport (`library`: MPI, NCCL) where it has sums of its own. `sent` is what
the rank that sends most sends, `time` that of the slowest rank, the least of all rounds;
`of a copy` compares the rate with that of a copy in the device's own memory. Results are
checked before anything is timed.

Exit status: 0 done, 2 a mistake in the request, 4 a rank was lost or late.
)";

struct BenchCollectivesFlags {
  RankOptions ranks;
  std::string bytes = "64MiB";
  std::string deadline;
  int rounds = 5;
  bool json = false;
};

Outcome run(const BenchCollectivesFlags& a, const Output& out) {
  RankOptions options = a.ranks;
  if (!a.deadline.empty())
    options.communicator.deadline = parse_deadline(a.deadline);
  const bool library = has_own_sums(options);
  options.communicator.fast_reduce = library;
  const std::unique_ptr<Ranks> ranks = make_ranks(options);
  CollectivesRequest request{.run = ranks->runner(),
                             .num_ranks = options.num_ranks,
                             .device = options.device,
                             .bytes = parse_bytes(a.bytes, "--bytes"),
                             .rounds = a.rounds,
                             .fast = library,
                             .make_lane = lanes_of(options.device)};
  if (ranks->speaks())
    request.progress = [&out](const std::string& what) { out.progress(what); };
  CollectivesReport report{.transport = ranks->transport(),
                           .device = options.device,
                           .num_ranks = options.num_ranks,
                           .bytes = request.bytes,
                           .rounds = a.rounds,
                           .measured = measure_collectives(request)};
  report.library_memory = ranks->library_memory();
  report.largest_library_bytes = largest_library_bytes(*ranks);
  out.progress("");
  if (report.transport == "nccl") report.library = nccl_description();
  std::string why_not;
  if (const auto gpu = find_cuda_device(&why_not);
      gpu && options.device == "cuda")
    report.device = gpu->name;
  ranks->finish();
  if (!ranks->speaks()) return Outcome::kDone;
  out.result(a.json ? collectives_json(report)
                    : collectives_text(report, out.ink()));
  return Outcome::kDone;
}

OptionRows options_of(BenchCollectivesFlags& a) {
  return joined(
      {{option("--ranks", a.ranks.num_ranks, "COUNT", "how many there are")
            .between(1, 1 << 20),
        option("--bytes", a.bytes, "SIZE", "of a rank's whole buffer"),
        option("--rounds", a.rounds, "COUNT", "of which the quickest counts")
            .between(1, 100'000),
        device_option(a.ranks.device, "whose memory: cpu or cuda"),
        transport_option(a.ranks.transport, "")},
       meeting_options(a.ranks),
       {deadline_option(a.deadline), json_flag(a.json)}});
}

}  // namespace

Verb add_bench_collectives(CLI::App& bench) {
  auto a = std::make_shared<BenchCollectivesFlags>();
  return add_verb(
      bench, {.name = "collectives",
              .description = "time every operation between ranks, exact and by "
                             "the library behind them",
              .options = options_of(*a),
              .footer = kBenchCollectivesExamples,
              .run = [a](const Output& out) { return run(*a, out); }});
}

}  // namespace canzona::cli
