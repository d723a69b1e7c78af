// Sums by the library behind the transport. Before each, the ranks meet, so
// that one that does not come can be named: a library would not tell.
#include <algorithm>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/communicator.h"

namespace canzona {

void Transport::prepare_own_sums(Deadline /*until*/) {
  throw UsageError("this transport has no sums of its own");
}
void Transport::post_own_all_reduce(std::span<float> /*data*/) {
  throw UsageError("this transport has no sums of its own");
}
void Transport::post_own_reduce_scatter(const float* /*input*/,
                                        std::span<const int> /*counts*/,
                                        float* /*output*/) {
  throw UsageError("this transport has no sums of its own");
}

void Communicator::prepare_fast_sums() {
  Transport& transport = exchange_.transport();
  if (!transport.has_own_sums())
    throw UsageError(cat("communicator ", name(),
                         ": fast_reduce is for MPI, which has sums of its own; "
                         "these ranks have none"));
  transport.prepare_own_sums(deadline_after(options_.deadline));
  fast_counts_.resize(static_cast<size_t>(size()));
}

bool Communicator::is_fast(Reduction reduction, Operation operation,
                           const Call& call) const {
  if (!options_.fast_reduce) return false;
  if (reduction == Reduction::kFp32SumOfBf16)
    require(false, operation, call,
            "fast_reduce has no bf16 on the wire; choose fp32");
  return reduction == Reduction::kFp32Sum;
}

void Communicator::fast_all_reduce(std::span<std::byte> data) {
  constexpr size_t kMost = size_t{1} << 30;
  auto* values = reinterpret_cast<float*>(data.data());
  const size_t count = data.size() / sizeof(float);
  exchange_.meet();
  for (size_t begin = 0; begin < count; begin += kMost) {
    exchange_.transport().post_own_all_reduce(
        {values + begin, std::min(kMost, count - begin)});
    exchange_.finish();
  }
  cut_evenly(static_cast<int64_t>(count));
  count_exchange(shares_);
  const int64_t own = shares_[static_cast<size_t>(rank())];
  std::ranges::fill(shares_, own);
  count_exchange(shares_);
}

void Communicator::fast_reduce_scatter(const std::byte* input,
                                       std::span<const int64_t> counts,
                                       std::byte* output) {
  int64_t before = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const int64_t count = counts[static_cast<size_t>(peer)];
    if (count > std::numeric_limits<int>::max())
      throw UsageError(cat(exchange_.where(),
                           ": fast_reduce adds at most 2^31 "
                           "elements for a rank, not ",
                           count));
    fast_counts_[static_cast<size_t>(peer)] = static_cast<int>(count);
    if (peer < rank()) before += count;
  }
  const int64_t own = counts[static_cast<size_t>(rank())] * 4;
  const bool in_place = output == input + before * 4;
  if (in_place && fast_sum_.size() < static_cast<size_t>(own))
    fast_sum_.resize(static_cast<size_t>(own));
  std::byte* sum = in_place ? fast_sum_.data() : output;
  exchange_.meet();
  exchange_.transport().post_own_reduce_scatter(
      reinterpret_cast<const float*>(input), fast_counts_,
      reinterpret_cast<float*>(sum));
  exchange_.finish();
  if (in_place) ops_.copy(output, sum, own);
  count_exchange(counts);
}

// A library does not tell what it sends to whom; the figures are those of sums
// without it, which a plan predicts.
void Communicator::count_exchange(std::span<const int64_t> counts) {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank())
      exchange_.count_sent(peer, counts[static_cast<size_t>(peer)] * 4);
}

}  // namespace canzona
