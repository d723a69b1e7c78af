#include "canzona/model/sizes.h"

#include <string_view>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

int64_t share_of(int64_t whole, int ranks, std::string_view what,
                 std::string_view axis) {
  if (whole % ranks != 0) {
    throw UsageError(cat("decoder: ", axis, "=", ranks, " does not divide ",
                         what, ", ", whole));
  }
  return whole / ranks;
}

}  // namespace

ExpertSizes expert_sizes(const DecoderConfig& config,
                         const Parallel& parallel) {
  const Architecture& a = config.architecture;
  const ExpertNumbers& experts = a.experts;
  CANZONA_CHECK(config.experts_per_token >= 1 &&
                    config.experts_per_token <= experts.count,
                config.experts_per_token, " of ", experts.count, " experts");
  share_of(experts.count, parallel.ep_size(), "the experts", "ep");
  const int tp = parallel.tp_size();
  return {.tokens = config.tokens(),
          .length = config.length,
          .hidden = a.hidden,
          .experts = experts.count,
          .choices = config.experts_per_token,
          .ffn = share_of(experts.ffn, tp, "the ffn of an expert", "tp"),
          .shared_ffn = share_of(experts.shared * experts.ffn, tp,
                                 "the ffn of the shared experts", "tp"),
          .ranks = parallel.ep_size()};
}

}  // namespace canzona
