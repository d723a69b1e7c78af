// `canzona bench`: operations between ranks (collectives). bench_step.cc and
// bench_decoder.cc have the others.
#include <algorithm>
#include <memory>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/nccl/nccl_library.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/report/bench/bench_text.h"
#include "cli/bench.h"
#include "cli/options.h"
#include "cli/plan_input.h"
#include "cli/ranks.h"

namespace canzona::cli {
namespace {

constexpr const char* kBenchExamples =
    R"(Examples:
  canzona bench step --help
  canzona bench collectives --help
  canzona bench decoder --help
)";

constexpr const char* kBenchCollectivesExamples =
    R"(Examples:
  canzona bench collectives --ranks 4 --bytes 64MiB
  mpirun -n 4 canzona bench collectives --ranks 4 --json
  mpirun -n 8 canzona bench collectives --ranks 8 --device cuda --bytes 256MiB
  mpirun -n 4 canzona bench collectives --ranks 4 --device cuda --share-gpu

Times every operation with pieces of equal and of unequal sizes: gathers, all-to-all, and
sums of fp32 in the fixed order that gives the same bits everywhere. `sent` is the largest
number of bytes any rank sends, `time` that of the slowest rank, the best of all rounds;
`of a copy` is the rate relative to a copy in the device's own memory.
Results are checked before anything is timed.

Exit status: 0 success, 2 invalid request, 4 a rank was lost or late.
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
  const std::unique_ptr<Ranks> ranks = make_ranks(options);
  CollectivesRequest request{.run = ranks->runner(),
                             .num_ranks = options.num_ranks,
                             .device = options.device,
                             .bytes = parse_bytes(a.bytes, "--bytes"),
                             .rounds = a.rounds,
                             .make_lane = lanes_of(options.device)};
  if (ranks->speaks())
    request.progress = [&out](const std::string& what) { out.progress(what); };
  CollectivesReport report{.transport = ranks->transport(),
                           .device = options.device,
                           .num_ranks = options.num_ranks,
                           .bytes = request.bytes,
                           .rounds = a.rounds,
                           .measured = measure_collectives(request)};
  out.progress("");
  if (report.transport == "nccl") report.library = nccl_description();
  std::string why_not;
  if (const auto gpu = find_cuda_device(&why_not);
      gpu && device_kind(options.device).has_own_memory)
    report.device = gpu->name;
  ranks->finish();
  if (!ranks->speaks()) return Outcome::kDone;
  out.result(collectives_view(report), a.json);
  return Outcome::kDone;
}

OptionRows options_of(BenchCollectivesFlags& a) {
  return joined(
      {{option("--ranks", a.ranks.num_ranks, "COUNT", "number of ranks")
            .between(1, 1 << 20),
        option("--bytes", a.bytes, "SIZE", "size of a rank's whole buffer"),
        option("--rounds", a.rounds, "COUNT",
               "rounds to time; the fastest counts")
            .between(1, 100'000),
        device_option(a.ranks.device,
                      "device whose memory is used: cpu or cuda"),
        transport_option(a.ranks.transport, "")},
       meeting_options(a.ranks),
       {deadline_option(a.deadline), json_flag(a.json)}});
}

Verb add_bench_collectives(CLI::App& bench) {
  return add_verb_of<BenchCollectivesFlags>(
      bench, {.name = "collectives",
              .description = "time every collective",
              .footer = kBenchCollectivesExamples});
}

}  // namespace

Verb add_bench(CLI::App& root) {
  return add_verb(
      root, {.name = "bench",
             .description = "time steps and collectives on this machine",
             .footer = kBenchExamples,
             .below = {add_bench_step, add_bench_collectives,
                       add_bench_decoder},
             .run = [](const Output&) -> Outcome {
               throw UsageError("canzona bench: expected step, collectives or "
                                "decoder");
             }});
}

}  // namespace canzona::cli
