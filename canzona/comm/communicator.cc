#include "canzona/comm/communicator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/lane.h"
#include "canzona/comm/running.h"

namespace canzona {
namespace {

int64_t slot_bytes(int64_t segment_bytes) {
  constexpr int64_t kAlignment = 64;
  return (segment_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t segment_of(const CommunicatorOptions& options, const WireOps& ops,
                   int num_ranks) {
  constexpr int64_t kDeviceSegments = 32 << 20;  // of all ranks
  constexpr int64_t kLeast = 64 << 10;
  if (ops.is_host() ||
      options.segment_bytes != CommunicatorOptions::kUsualSegment)
    return options.segment_bytes;
  return std::max(kDeviceSegments / num_ranks, kLeast);
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Transport> transport,
                           const WireOps& ops, CommunicatorOptions options,
                           std::string name)
    : Communicator(Exchange(std::move(transport), std::move(name)), ops,
                   std::move(options), nullptr) {}

Communicator::Communicator(Exchange exchange, const WireOps& ops,
                           CommunicatorOptions options,
                           std::shared_ptr<FlightRecord> flight)
    : ops_(ops),
      options_(std::move(options)),
      exchange_(std::move(exchange)),
      flight_(std::move(flight)),
      check_(size(), options_.check_collectives),
      pieces_(2 * static_cast<size_t>(size())),
      shares_(static_cast<size_t>(size())) {
  if (options_.segment_bytes < 1)
    throw UsageError(cat("communicator ", this->name(), ": segment_bytes is ",
                         options_.segment_bytes, ", expected at least 1"));
  if (options_.ranks_per_node < 0)
    throw UsageError(cat("communicator ", this->name(), ": ranks_per_node is ",
                         options_.ranks_per_node,
                         ", expected 0 (not known) or more"));
  exchange_.set_ranks_per_node(options_.ranks_per_node);
  if (flight_ == nullptr)
    flight_ = std::make_shared<FlightRecord>(rank(), options_.flight_records,
                                             options_.clock);
  if (lane() == nullptr) exchange_.transport().copy_by(ops_);
  segment_bytes_ = segment_of(options_, ops_, size());
  // One element fits, however small the segment.
  slot_ = slot_bytes(std::max<int64_t>(segment_bytes_ / 2, 16));
  if (options_.fast_reduce) prepare_fast_sums();
  if (ops_.is_host()) reserve_scratch();
}

Communicator::~Communicator() {
  if (scratch_ != nullptr) ops_.release(scratch_);
}

void Communicator::reserve_scratch() {
  if (scratch_ != nullptr) return;
  const int depth = std::bit_width(static_cast<unsigned>(size()));
  scratch_ = ops_.allocate((4 * size() + depth + 1) * slot_);
}

void Communicator::note_error(const std::exception_ptr& error) {
  if (exchange_.transport().is_aborted()) return;
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost&) {
  } catch (...) {
    flight_->note_error(error);
  }
}

void Communicator::fail(int64_t number) noexcept {
  note_error(std::current_exception());
  exchange_.transport().retract();
  flight_->end(number, FlightRecord::State::kFailed, exchange_.sent().all);
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const PeerLost& error) {
    exchange_.transport().abort(error.what());
  } catch (const UsageError& error) {
    exchange_.transport().abort(error.what());
  } catch (const std::exception& error) {
    // Whoever copies or adds does not know for whom.
    exchange_.transport().abort(cat(exchange_.where(), ": ", error.what()));
  } catch (...) {
    exchange_.transport().abort(exchange_.where());
  }
  if (options_.on_failure) options_.on_failure(*flight_);
}

void Communicator::require(bool right, Operation operation, const Call& call,
                           const std::string& what) const {
  if (!right)
    throw UsageError(cat("rank ", exchange_.known_as(rank()), " of ", name(),
                         ": ", to_string(operation), " ", quoted(call.label),
                         ": ", what));
}

void Communicator::barrier(const Call& call) {
  run({.operation = Operation::kBarrier}, call, [&] { exchange_.meet(); });
}

void Communicator::broadcast(int root, std::span<std::byte> data,
                             const Call& call) {
  if (root < 0 || root >= size())
    require(false, Operation::kBroadcast, call,
            cat("root ", root, " of ", size(), " ranks"));
  run({.operation = Operation::kBroadcast,
       .variant = root,
       .total = static_cast<int64_t>(data.size())},
      call, [&] {
        for (int peer = 0; peer < size() && rank() == root; ++peer)
          if (peer != root) exchange_.send(peer, data);
        if (rank() != root) exchange_.receive(root, data);
        exchange_.finish();
      });
}

void Communicator::gather_pieces(std::span<const std::byte> input,
                                 std::span<const int64_t> bytes,
                                 std::byte* output) {
  std::byte* place = output;
  for (int peer = 0; peer < size(); ++peer) {
    const auto length = static_cast<size_t>(bytes[static_cast<size_t>(peer)]);
    if (peer != rank()) {
      exchange_.receive(peer, {place, length});
    } else if (place != input.data()) {
      ops_.copy(place, input.data(), static_cast<int64_t>(length));
    }
    place += length;
  }
  for (int step = 1; step < size(); ++step)
    exchange_.send((rank() + step) % size(), input);
  exchange_.finish();
}

void Communicator::all_gather_v(std::span<const std::byte> input,
                                std::span<const int64_t> bytes,
                                std::span<std::byte> output, const Call& call) {
  require_counts(Operation::kAllGather, call, bytes, 1, output.size(),
                 input.size());
  require_apart(Operation::kAllGather, call, input, output, bytes, 1);
  run({.operation = Operation::kAllGather,
       .total = static_cast<int64_t>(output.size()),
       .counts = bytes},
      call, [&] { gather_pieces(input, bytes, output.data()); });
}

std::chrono::nanoseconds Communicator::links_busy() const {
  const LinkUse* links = exchange_.transport().links();
  return links == nullptr ? std::chrono::nanoseconds{0} : busy_of(*links);
}
std::chrono::nanoseconds Communicator::busy_of(const LinkUse& use) const {
  return use.busy(exchange_.transport().link_time());
}

void Communicator::abort(std::string_view reason) {
  exchange_.transport().abort(reason);
}

void Communicator::give_up(const std::exception_ptr& error,
                           std::string_view doing) {
  note_error(error);
  const std::string who = cat("rank ", known_as(), ": ", doing);
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    abort(doing.empty() ? std::string(known.what())
                        : cat(who, ": ", known.what()));
  } catch (...) {
    abort(who + " failed");
  }
}

std::unique_ptr<Communicator> Communicator::split(int color, int key,
                                                  std::string name,
                                                  const Call& call,
                                                  const WireOps* ops) {
  return split_off(color, key, std::move(name), call,
                   ops != nullptr ? *ops : ops_, nullptr);
}

std::unique_ptr<Communicator> Communicator::split_ordered(
    int color, int key, std::string name, std::shared_ptr<Lane> lane,
    const Call& call) {
  const WireOps& ops = lane->ops();
  return split_off(color, key, std::move(name), call, ops, std::move(lane));
}

std::unique_ptr<Communicator> Communicator::split_off(
    int color, int key, std::string name, const Call& call, const WireOps& ops,
    std::shared_ptr<Lane> lane) {
  struct Wish {
    int32_t color, key, rank;
  };
  std::vector<Wish> wishes(static_cast<size_t>(size()));
  const Wish own{color, key, rank()};
  const std::vector<int64_t> bytes(wishes.size(), sizeof(Wish));
  std::unique_ptr<Transport> group;
  std::vector<int> members, known_as;
  run({.operation = Operation::kSplit}, call, [&] {
    gather_pieces(std::as_bytes(std::span(&own, 1)), bytes,
                  std::as_writable_bytes(std::span(wishes)).data());
    std::erase_if(wishes, [&](const Wish& w) { return w.color != color; });
    std::ranges::sort(wishes, {}, [](const Wish& wish) {
      return std::pair(wish.key, wish.rank);
    });
    for (const Wish& wish : wishes) {
      members.push_back(wish.rank);
      known_as.push_back(exchange_.known_as(wish.rank));
    }
    if (color < 0) return;
    Transport& transport = exchange_.transport();
    const Deadline until = exchange_.deadline();
    group = lane == nullptr
                ? transport.subgroup(members, sequence_, color, until)
                : transport.ordered_subgroup(members, sequence_, color, until,
                                             std::move(lane));
  });
  if (group == nullptr) return nullptr;
  return std::unique_ptr<Communicator>(
      new Communicator(Exchange(std::move(group), std::move(name), known_as),
                       ops, options_, flight_));
}

std::unique_ptr<Transport> Transport::ordered_subgroup(
    std::span<const int> /*members*/, int64_t /*id*/, int /*color*/,
    Deadline /*until*/, std::shared_ptr<Lane> /*lane*/) {
  throw UsageError("these ranks have no groups whose operations are ordered");
}
void Transport::post_show(int to, std::span<const std::byte> /*data*/) {
  throw InternalError(cat("nothing can be shown to rank ", to));
}
void Transport::post_look(int from, int64_t /*bytes*/,
                          const std::byte** /*where*/) {
  throw InternalError(cat("memory of rank ", from, " cannot be read"));
}

// Sums by the library behind the transport. Before each, the ranks meet, so
// that one that does not come can be named: a library would not tell.

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
