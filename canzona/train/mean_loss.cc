#include "canzona/train/mean_loss.h"

#include <algorithm>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/base/index.h"

namespace canzona {

double mean_loss(LocalDecoder& model, int64_t count, const ReadSequence& read,
                 const std::function<void(int64_t)>& done) {
  CANZONA_CHECK(count > 0);
  const int64_t at_once = model.config().micro_batch;
  const int64_t length = model.config().length + 1;
  std::vector<int32_t> tokens(index(at_once * length));
  double sum = 0;
  for (int64_t first = 0; first < count; first += at_once) {
    // Sequences that pad the last micro-batch do not count.
    for (int64_t i = 0; i < at_once; ++i)
      read((first + i) % count,
           std::span(tokens).subspan(index(i * length), index(length)));
    const int64_t counted = std::min(at_once, count - first);
    sum += model.loss(tokens, counted) * static_cast<double>(counted);
    done(first + counted);
  }
  return sum / static_cast<double>(count);
}

}  // namespace canzona
