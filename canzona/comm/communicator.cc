#include "canzona/comm/communicator.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/running.h"

namespace canzona {
namespace {

int64_t wanted_segment(const CommunicatorOptions& options, const WireOps& ops) {
  const bool usual =
      options.segment_bytes == CommunicatorOptions::kUsualSegment;
  return ops.is_host() || !usual ? options.segment_bytes : kMostSumStaging;
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
  segment_bytes_ = wanted_segment(options_, ops_);
  slot_ = sum_slot_bytes(size(), segment_bytes_);
  segment_bytes_ = std::min(segment_bytes_, 2 * slot_);
  if (ops_.is_host()) reserve_scratch();
}

Communicator::~Communicator() {
  if (scratch_ == nullptr) return;
  if (scratch_is_transports_)
    exchange_.transport().release(scratch_);
  else
    ops_.release(scratch_);
}

void Communicator::reserve_scratch() {
  if (scratch_ != nullptr) return;
  scratch_bytes_ = staging_bytes();
  if (lane() != nullptr)
    scratch_ = exchange_.transport().allocate(scratch_bytes_);
  scratch_is_transports_ = scratch_ != nullptr;
  if (!scratch_is_transports_) scratch_ = ops_.allocate(scratch_bytes_);
  register_memory({scratch_, static_cast<size_t>(scratch_bytes_)},
                  {.same_bytes = true, .same_places = true});
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
    // The code that copies or adds does not know the operation, so it is added
    // here.
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
        if (broadcast_at_once(root, data)) return;
        for (int peer = 0; peer < size() && rank() == root; ++peer)
          if (peer != root) exchange_.send(peer, data);
        if (rank() != root) exchange_.receive(root, data);
        exchange_.finish();
      });
}

bool Communicator::broadcast_at_once(int root, std::span<std::byte> data) {
  if (data.empty() || size() == 1 ||
      !exchange_.transport().post_own_broadcast(root, data))
    return false;
  exchange_.finish();
  for (int peer = 0; peer < size() && rank() == root; ++peer)
    if (peer != root)
      exchange_.count_sent(peer, static_cast<int64_t>(data.size()));
  return true;
}

bool Communicator::gather_at_once(std::span<const int64_t> bytes,
                                  std::byte* output) {
  const int64_t each = bytes.front();
  const auto other = [&](int64_t count) { return count != each; };
  const auto whole = static_cast<size_t>(each) * bytes.size();
  if (each == 0 || size() == 1 || std::ranges::any_of(bytes, other) ||
      !exchange_.transport().post_own_gather({output, whole}))
    return false;
  exchange_.finish();
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) exchange_.count_sent(peer, each);
  return true;
}

void Communicator::gather_pieces(std::span<const std::byte> input,
                                 std::span<const int64_t> bytes,
                                 std::byte* output) {
  const auto length = [&](int peer) {
    return bytes[static_cast<size_t>(peer)];
  };
  std::byte* own =
      std::accumulate(bytes.begin(), bytes.begin() + rank(), output);
  if (own != input.data()) ops_.copy(own, input.data(), length(rank()));
  if (gather_at_once(bytes, output)) return;
  std::byte* place = output;
  for (int peer = 0; peer < size(); place += length(peer), ++peer)
    if (peer != rank())
      exchange_.receive(peer, {place, static_cast<size_t>(length(peer))});
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
  const auto bytes_of_wish = [&](int of) {
    return std::as_writable_bytes(
        std::span(wishes).subspan(static_cast<size_t>(of), 1));
  };
  wishes[static_cast<size_t>(rank())] = {color, key, rank()};
  std::unique_ptr<Transport> group;
  std::vector<int> members, known_as;
  run({.operation = Operation::kSplit}, call, [&] {
    exchange_.transport().set_of_host(true);
    for (int step = 1; step < size(); ++step) {
      const int from = (rank() + size() - step) % size();
      exchange_.receive(from, bytes_of_wish(from));
      exchange_.send((rank() + step) % size(), bytes_of_wish(rank()));
    }
    exchange_.finish();
    exchange_.transport().set_of_host(false);
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
void Transport::post_show(int to, std::span<const std::byte> /*data*/,
                          int64_t /*wire_bytes*/) {
  throw InternalError(cat("nothing can be shown to rank ", to));
}
void Transport::post_look(int from, int64_t /*bytes*/,
                          const std::byte** /*where*/) {
  throw InternalError(cat("memory of rank ", from, " cannot be read"));
}

}  // namespace canzona
