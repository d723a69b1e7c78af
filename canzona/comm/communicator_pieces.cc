// The collectives with a count per rank: sums and all-to-all.
#include <algorithm>
#include <functional>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/running.h"
#include "canzona/comm/wire_ops.h"

namespace canzona {
namespace {

std::span<std::byte> bytes_at(std::byte* memory, int64_t bytes) {
  return {memory, static_cast<size_t>(bytes)};
}

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

// True if every piece lies inside its buffer.
template <class Byte>
bool is_inside(const Pieces<Byte>& pieces, size_t num_ranks) {
  if (pieces.bytes.size() != num_ranks || pieces.offsets.size() != num_ranks)
    return false;
  const auto whole = static_cast<int64_t>(pieces.data.size());
  for (size_t i = 0; i < num_ranks; ++i) {
    const int64_t bytes = pieces.bytes[i];
    const int64_t offset = pieces.offsets[i];
    if (bytes < 0 || offset < 0 || offset > whole || bytes > whole - offset)
      return false;
  }
  return true;
}

}  // namespace

void Communicator::require_counts(Operation operation, const Call& call,
                                  std::span<const int64_t> counts,
                                  int64_t element, size_t whole,
                                  size_t own) const {
  if (counts.size() != shares_.size())
    require(false, operation, call,
            cat(counts.size(), " counts for ", size(), " ranks"));
  const auto limit = static_cast<int64_t>(whole) / element;
  int64_t total = 0;
  for (const int64_t count : counts) {
    if (count < 0 || count > limit - total)
      require(false, operation, call,
              cat("counts are negative or above the buffer's ", limit));
    total += count;
  }
  if (!std::cmp_equal(total * element, whole))
    require(false, operation, call,
            cat("counts of ", total * element, " bytes, a buffer of ", whole));
  const int64_t mine = counts[static_cast<size_t>(rank())] * element;
  if (!std::cmp_equal(mine, own))
    require(false, operation, call,
            cat("this rank's count is ", mine, " bytes, its buffer has ", own));
}

// Peers would still read, or we would still write, where the two overlap.
void Communicator::require_apart(Operation operation, const Call& call,
                                 std::span<const std::byte> own,
                                 std::span<const std::byte> whole,
                                 std::span<const int64_t> counts,
                                 int64_t element) const {
  const int64_t before =
      std::accumulate(counts.begin(), counts.begin() + rank(), int64_t{0});
  if (overlap(own, whole) && own.data() != whole.data() + before * element)
    require(false, operation, call,
            "this rank's buffer overlaps the whole one outside its own place");
}

int64_t Communicator::segment_elements(Reduction reduction) const {
  return std::max<int64_t>(1, segment_bytes_ / 2 / element_bytes(reduction));
}

void Communicator::reduce_scatter_v(Reduction reduction,
                                    std::span<const std::byte> input,
                                    std::span<const int64_t> counts,
                                    std::span<std::byte> output,
                                    const Call& call) {
  require_counts(Operation::kReduceScatter, call, counts,
                 element_bytes(reduction), input.size(), output.size());
  require_apart(Operation::kReduceScatter, call, output, input, counts,
                element_bytes(reduction));
  run({.operation = Operation::kReduceScatter,
       .variant = static_cast<int64_t>(reduction),
       .total = static_cast<int64_t>(input.size()),
       .counts = counts},
      call,
      [&] { add_pieces(reduction, input.data(), counts, output.data()); });
}

void Communicator::add_pieces(Reduction reduction, const std::byte* input,
                              std::span<const int64_t> counts,
                              std::byte* output) {
  if (adds_shown(reduction))
    return add_shown(reduction, {.data = input, .counts = counts}, output);
  reserve_scratch();
  const int64_t element = element_bytes(reduction);
  const int64_t before =
      std::accumulate(counts.begin(), counts.begin() + rank(), int64_t{0});
  const std::byte* own = input + before * element;
  const int64_t step = segment_elements(reduction);
  const int64_t longest = std::ranges::max(counts);
  const Row row{.data = input, .counts = counts};
  if (longest > 0) post_segment(reduction, row, 0, 0);
  int half = 0;
  for (int64_t begin = 0; begin < longest; begin += step, half = 1 - half) {
    exchange_.finish();
    if (begin + step < longest) {
      exchange_.transport().follow_on();
      post_segment(reduction, row, begin + step, 1 - half);
    }
    const int64_t count =
        std::min(step, counts[static_cast<size_t>(rank())] - begin);
    if (count > 0)
      add_segment(reduction, half, count, output == own,
                  output + begin * element);
  }
}

bool Communicator::adds_shown(Reduction reduction) const {
  return exchange_.transport().can_show() &&
         ops_.sums_in_place(reduction, size());
}

// Only this rank reads its own piece, so the sum may replace it.
void Communicator::add_shown(Reduction reduction, const Row& row,
                             std::byte* place) {
  const int64_t element = element_bytes(reduction);
  const int64_t count = row.counts[static_cast<size_t>(rank())];
  const std::byte* next = row.data;
  for (int peer = 0; peer < size(); ++peer) {
    const auto i = static_cast<size_t>(peer);
    const std::byte* piece =
        row.offsets.empty() ? next : row.data + row.offsets[i];
    next += row.counts[i] * element;
    if (peer == rank()) {
      pieces(0)[i] = piece;
      continue;
    }
    exchange_.look(peer, count * element, &pieces(0)[i]);
    exchange_.show(peer, {piece, static_cast<size_t>(row.counts[i] * element)},
                   row.counts[i] * wire_bytes(reduction));
  }
  exchange_.finish();
  const bool is_there =
      size() == 1 && !is_narrowed(reduction) && place == pieces(0)[0];
  if (count > 0 && !is_there)
    ops_.sum_in_place(reduction, pieces(0), count, place);
  exchange_.transport().end_looks();
  exchange_.finish();
}

// Sends elements [begin, begin + segment) of every rank's piece to the rank
// that adds them, and receives this rank's own from all others.
void Communicator::post_segment(Reduction reduction, const Row& row,
                                int64_t begin, int half) {
  const int64_t element = element_bytes(reduction);
  const int64_t wire = wire_bytes(reduction);
  const auto length = [&](int peer) {
    return std::clamp<int64_t>(row.counts[static_cast<size_t>(peer)] - begin, 0,
                               segment_elements(reduction));
  };
  const std::byte* next = row.data;
  for (int peer = 0; peer < size(); ++peer) {
    const int64_t count = length(peer);
    const std::byte* piece =
        row.offsets.empty() ? next
                            : row.data + row.offsets[static_cast<size_t>(peer)];
    const std::byte* segment = count > 0 ? piece + begin * element : piece;
    if (is_narrowed(reduction)) {
      ops_.narrow(reduction, staging(peer, half), segment, count);
      segment = staging(peer, half);
    }
    pieces(half)[static_cast<size_t>(peer)] =
        peer == rank() ? segment : arrival(peer, half);
    if (peer != rank()) {
      exchange_.receive(peer,
                        bytes_at(arrival(peer, half), length(rank()) * wire));
      exchange_.send(peer, {segment, static_cast<size_t>(count * wire)});
    }
    next += row.counts[static_cast<size_t>(peer)] * element;
  }
}

// The tree may write its sum before it has read the rank's own piece, so
// in-place sums need a copy.
void Communicator::add_segment(Reduction reduction, int half, int64_t count,
                               bool in_place, std::byte* place) {
  if (ops_.sum_at_once(reduction, pieces(half), count, place)) return;
  std::byte* sum = in_place ? sums() : place;
  tree_sum(ops_, reduction, pieces(half), count, sum, sums() + slot_);
  if (in_place) ops_.copy(place, sum, count * element_bytes(reduction));
}

void Communicator::cut_evenly(int64_t count) {
  for (int i = 0; i < size(); ++i)
    shares_[static_cast<size_t>(i)] =
        count * (i + 1) / size() - count * i / size();
}

void Communicator::all_reduce(Reduction reduction, std::span<std::byte> data,
                              const Call& call) {
  const int64_t element = element_bytes(reduction);
  const auto bytes = static_cast<int64_t>(data.size());
  if (bytes % element != 0)
    require(false, Operation::kAllReduce, call,
            cat(bytes, " bytes of elements of ", element));
  run({.operation = Operation::kAllReduce,
       .variant = static_cast<int64_t>(reduction),
       .total = bytes},
      call, [&] {
        if (add_integers_at_once(reduction, data)) return;
        const int64_t count = bytes / element;
        cut_evenly(count);
        const auto before = shares_.begin() + rank();
        std::byte* own =
            data.data() +
            std::accumulate(shares_.begin(), before, int64_t{0}) * element;
        add_pieces(reduction, data.data(), shares_, own);
        for (int64_t& share : shares_) share *= element;
        gather_pieces(bytes_at(own, *before), shares_, data.data());
      });
}

// Integer sums do not depend on the order. The bytes counted are those that the
// exchange would send.
bool Communicator::add_integers_at_once(Reduction reduction,
                                        std::span<std::byte> data) {
  if (lane() == nullptr || data.empty() || size() == 1) return false;
  switch (reduction) {
    case Reduction::kFp32Sum:
    case Reduction::kFp32SumOfBf16:
      return false;
    case Reduction::kInt64Sum:
    case Reduction::kInt64Max:
      if (!exchange_.transport().post_own_integers(reduction, data))
        return false;
      exchange_.finish();
  }
  const int64_t element = element_bytes(reduction);
  cut_evenly(static_cast<int64_t>(data.size()) / element);
  const int64_t own = shares_[static_cast<size_t>(rank())];
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank())
      exchange_.count_sent(
          peer, (shares_[static_cast<size_t>(peer)] + own) * element);
  return true;
}

void Communicator::all_to_all_v(const Pieces<const std::byte>& send,
                                const Pieces<std::byte>& receive,
                                const Call& call) {
  const size_t n = shares_.size();
  if (!is_inside(send, n) || !is_inside(receive, n))
    require(false, Operation::kAllToAll, call,
            cat("a piece for each of ", n, " ranks must lie in its buffer"));
  if (overlap(send.data, receive.data))
    require(false, Operation::kAllToAll, call,
            "what is sent and what is received overlap");
  const std::span<const std::byte> own = send.of(rank());
  if (own.size() != receive.of(rank()).size())
    require(false, Operation::kAllToAll, call,
            cat("this rank sends itself ", own.size(), " bytes and expects ",
                receive.of(rank()).size()));
  run({.operation = Operation::kAllToAll,
       .to = send.bytes,
       .from = receive.bytes},
      call, [&] {
        for (int step = 1; step < size(); ++step) {
          const int from = (rank() + size() - step) % size();
          const int to = (rank() + step) % size();
          exchange_.receive(from, receive.of(from));
          exchange_.send(to, send.of(to));
        }
        ops_.copy(receive.of(rank()).data(), own.data(),
                  static_cast<int64_t>(own.size()));
        exchange_.finish();
      });
}

namespace {

// Sums and gathers of pieces in place, several for every rank.

// Iterates over the segments of all runs in order.
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
  run({.operation = Operation::kReduceScatter,
       .variant = static_cast<int64_t>(reduction),
       .total = static_cast<int64_t>(runs.data.size()),
       .counts = runs.counts},
      call, [&] { add_runs(reduction, runs); });
}

void Communicator::add_runs(Reduction reduction, const PieceRuns& runs) {
  const size_t n = shares_.size();
  if (adds_shown(reduction)) {
    for (size_t first = 0; first < runs.counts.size(); first += n)
      add_shown(
          reduction,
          {runs.data.data(), runs.counts.subspan(first, n),
           runs.offsets.subspan(first, n)},
          runs.data.data() + runs.offsets[first + static_cast<size_t>(rank())]);
    return;
  }
  reserve_scratch();
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
  const bool together = exchange_.transport().takes_many();
  for (size_t first = 0; first < runs.counts.size(); first += n) {
    if (first > 0) exchange_.transport().follow_on();
    for (int step = 1; step < size(); ++step) {
      const int from = (rank() + size() - step) % size();
      exchange_.receive(from, piece(first, from));
      exchange_.send((rank() + step) % size(), piece(first, rank()));
    }
    if (!together) exchange_.finish();
  }
  if (together) exchange_.finish();
}

}  // namespace canzona
