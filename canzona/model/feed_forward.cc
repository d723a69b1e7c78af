#include "canzona/model/feed_forward.h"

#include "canzona/base/error.h"

namespace canzona {

template <class Real>
FeedBytes feed_bytes(const DecoderConfig& config, const Parallel& parallel,
                     int64_t layer) {
  if (config.architecture.experts.in_layer(layer))
    throw UsageError("experts are not there yet");
  const DecoderSizes sizes = decoder_sizes(config, parallel);
  return {Mlp<Real>::saved_bytes(sizes), Mlp<Real>::scratch_bytes(sizes)};
}

template FeedBytes feed_bytes<float>(const DecoderConfig&, const Parallel&,
                                     int64_t);
template FeedBytes feed_bytes<double>(const DecoderConfig&, const Parallel&,
                                      int64_t);

}  // namespace canzona
