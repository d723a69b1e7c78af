// Sums and gathers of pieces where they lie, several for every rank.
#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/running.h"

namespace canzona {
namespace {

// Goes through the segments of all runs, in order.
class Segments {
 public:
  Segments(const PieceRuns& runs, size_t num_ranks, int64_t step)
      : counts_(runs.counts), num_ranks_(num_ranks), step_(step) {
    skip_empty();
  }

  bool at_end() const { return run_ * num_ranks_ == counts_.size(); }
  size_t run() const { return run_; }
  int64_t begin() const { return begin_; }
  void advance() {
    begin_ += step_;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (!at_end() && begin_ >= longest()) {
      ++run_;
      begin_ = 0;
    }
  }
  int64_t longest() const {
    return std::ranges::max(counts_.subspan(run_ * num_ranks_, num_ranks_));
  }

  std::span<const int64_t> counts_;
  size_t num_ranks_;
  int64_t step_;
  size_t run_ = 0;
  int64_t begin_ = 0;
};

}  // namespace

void Communicator::require_runs(Operation operation, const Call& call,
                                const PieceRuns& runs, int64_t element) const {
  const size_t n = runs.counts.size();
  if (n % shares_.size() != 0 || runs.offsets.size() != n)
    require(false, operation, call,
            cat(n, " counts and ", runs.offsets.size(),
                " offsets, not as many for each of ", size(), " ranks"));
  const auto whole = static_cast<int64_t>(runs.data.size());
  for (size_t i = 0; i < n; ++i) {
    const int64_t offset = runs.offsets[i];
    if (offset < 0 || offset > whole || runs.counts[i] < 0 ||
        runs.counts[i] > (whole - offset) / element)
      require(false, operation, call,
              cat("piece ", i, " of ", n, " does not lie in a buffer of ",
                  whole, " bytes"));
  }
}

void Communicator::reduce_scatter_runs(Reduction reduction,
                                       const PieceRuns& runs,
                                       const Call& call) {
  require_runs(Operation::kReduceScatter, call, runs, element_bytes(reduction));
  if (is_fast(reduction, Operation::kReduceScatter, call))
    require(false, Operation::kReduceScatter, call,
            "fast_reduce adds pieces that lie one after the other, not in "
            "runs");
  run({.operation = Operation::kReduceScatter,
       .variant = static_cast<int64_t>(reduction),
       .total = static_cast<int64_t>(runs.data.size()),
       .counts = runs.counts},
      call, [&] { add_runs(reduction, runs); });
}

void Communicator::add_runs(Reduction reduction, const PieceRuns& runs) {
  const size_t n = shares_.size();
  const int64_t step = segment_elements(reduction);
  const auto post = [&](const Segments& segment, int half) {
    const size_t first = segment.run() * n;
    post_segment(reduction,
                 {runs.data.data(), runs.counts.subspan(first, n),
                  runs.offsets.subspan(first, n)},
                 segment.begin(), half);
  };
  const auto add = [&](const Segments& segment, int half) {
    const size_t own = segment.run() * n + static_cast<size_t>(rank());
    const int64_t count = std::min(step, runs.counts[own] - segment.begin());
    if (count <= 0) return;
    std::byte* place = runs.data.data() + runs.offsets[own] +
                       segment.begin() * element_bytes(reduction);
    add_segment(reduction, half, count, true, place);
  };
  Segments next(runs, n, step);
  if (!next.at_end()) post(next, 0);
  for (int half = 0; !next.at_end(); half = 1 - half) {
    const Segments arrived = next;
    exchange_.finish();
    next.advance();
    if (!next.at_end()) {
      exchange_.transport().follow_on();
      post(next, 1 - half);
    }
    add(arrived, half);
  }
}

void Communicator::all_gather_runs(const PieceRuns& runs, const Call& call) {
  require_runs(Operation::kAllGather, call, runs, 1);
  run({.operation = Operation::kAllGather,
       .total = static_cast<int64_t>(runs.data.size()),
       .counts = runs.counts},
      call, [&] { gather_runs(runs); });
}

void Communicator::gather_runs(const PieceRuns& runs) {
  const size_t n = shares_.size();
  const auto piece = [&](size_t first, int of) {
    const size_t i = first + static_cast<size_t>(of);
    return runs.data.subspan(static_cast<size_t>(runs.offsets[i]),
                             static_cast<size_t>(runs.counts[i]));
  };
  for (size_t first = 0; first < runs.counts.size(); first += n) {
    if (first > 0) exchange_.transport().follow_on();
    for (int step = 1; step < size(); ++step) {
      const int from = (rank() + size() - step) % size();
      exchange_.receive(from, piece(first, from));
      exchange_.send((rank() + step) % size(), piece(first, rank()));
    }
    exchange_.finish();
  }
}

}  // namespace canzona
