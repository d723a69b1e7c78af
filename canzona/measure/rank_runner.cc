#include "canzona/measure/rank_runner.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

bool is_too_fast(const Link& link, double copy_bytes_per_second) {
  return link &&
         std::max(link->intra_bytes_per_second, link->inter_bytes_per_second) >
             0.25 * copy_bytes_per_second;
}

void put_link(const Link& link, PlanOptions& options) {
  if (!link) return;
  options.links = {link->intra_bytes_per_second, link->inter_bytes_per_second,
                   link->latency_seconds, /*nominal=*/false};
  options.ranks_per_node = link->ranks_per_node;
}

LinkModel scaled_link(const Link& link, const Plan& plan, std::string_view name,
                      double ratio, double compute,
                      const std::function<double(const LinkModel&)>& sending) {
  constexpr double kNominalBandwidth = 1e9;
  LinkModel scaled =
      link.value_or(LinkModel{.intra_bytes_per_second = kNominalBandwidth,
                              .inter_bytes_per_second = kNominalBandwidth,
                              .ranks_per_node = plan.options.ranks_per_node});
  const double seconds = sending(scaled);
  if (seconds == 0)
    throw UsageError(cat("a ratio of communication to compute of ", ratio, ": ",
                         name, " sends nothing on ", to_string(plan.mesh)));
  const double factor = seconds / (ratio * compute);
  scaled.intra_bytes_per_second *= factor;
  scaled.inter_bytes_per_second *= factor;
  return scaled;
}

RankRunner on_threads(int num_ranks, const CommunicatorOptions& options,
                      Gate* gate) {
  return [=](const Link& link, const RankFunction& function) {
    RunOptions run;
    run.communicator = options;
    run.world.link = link;
    run.world.gate = gate;
    run_ranks(num_ranks, run, function);
  };
}

}  // namespace canzona
