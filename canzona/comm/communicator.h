// Collectives between the ranks of a group.
//
//   world.all_reduce(Reduction::kFp32Sum, bytes_of(gradients),
//                    {.label = "gradients of layers.3"});
//   std::unique_ptr<Communicator> tp = world.split(rank / 4, rank, "tp");
//   tp->all_gather_v(shard, bytes_of_each_rank, whole);
//
// All ranks of a group call the same operations in the same order. Sums have
// the bits of tree_sum over rank numbers: they depend neither on counts and
// segments nor on timing, and are the same on every rank. A count may be 0.
//
// An operation that cannot end throws on every rank: PeerLost where another
// rank is late (past the deadline), has left or has aborted, by its number in
// the group that was split first; UsageError where sizes disagree. The group is
// dead then: leave it, and do not call again.
//
// Spans belong to the caller and stay until the operation returns. Nothing is
// allocated after construction, apart from split. A communicator serves one
// thread at a time, abort() any; groups are independent of each other.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/sum_staging.h"
#include "canzona/comm/call.h"
#include "canzona/comm/exchange.h"
#include "canzona/comm/flight_record.h"
#include "canzona/comm/link_use.h"
#include "canzona/comm/transport.h"
#include "canzona/comm/wire_ops.h"

namespace canzona {

struct CommunicatorOptions {
  std::chrono::nanoseconds deadline = std::chrono::minutes(10);
  // Sums travel in halves of such a segment, one while the last is added. All
  // that is reserved for them has at most a fixed size (base/sum_staging.h):
  // groups of many ranks have shorter ones. Memory of a device, which has a
  // price for every call, has as large ones as that allows, reserved with the
  // first sum, unless another number is given.
  static constexpr int64_t kUsualSegment = kUsualSumSegment;
  int64_t segment_bytes = kUsualSegment;
  // Ranks compare operation, label and sizes before every collective.
  bool check_collectives = false;
  // Sums of fp32 by the library behind the transport, which adds in an order of
  // its own: other bits on other groups and machines. UsageError where there is
  // no such library. Integers are added as ever; bf16 on the wire is refused.
  bool fast_reduce = false;
  // Ranks of one node, by their numbers in the group that was split first: the
  // traffic log tells what leaves a node. 0: not known, nothing does.
  int ranks_per_node = 0;
  int flight_records = 64;
  FlightRecord::Clock clock = {};
  // Called on the failing rank, before the operation throws.
  std::function<void(const FlightRecord&)> on_failure = {};
};

// Pieces of one buffer, one per rank, in bytes.
template <class Byte>
struct Pieces {
  std::span<Byte> data;
  std::span<const int64_t> bytes;
  std::span<const int64_t> offsets;

  std::span<Byte> of(int rank) const {
    const auto i = static_cast<size_t>(rank);
    return data.subspan(static_cast<size_t>(offsets[i]),
                        static_cast<size_t>(bytes[i]));
  }
};

// Pieces of one buffer that are summed or gathered where they lie, in runs of
// one piece per rank: those of the first run by rank, then of the next.
struct PieceRuns {
  std::span<std::byte> data;
  std::span<const int64_t> counts;   // elements of a sum, bytes of a gather
  std::span<const int64_t> offsets;  // in bytes
};

class Communicator {
 public:
  // `ops` outlives the communicator.
  Communicator(std::unique_ptr<Transport> transport, const WireOps& ops,
               CommunicatorOptions options, std::string name);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return exchange_.transport().rank(); }
  int size() const { return exchange_.transport().size(); }
  const std::string& name() const { return exchange_.name(); }

  // The input is one piece per rank, of `counts` elements, in order; the output
  // is the sum of all ranks' pieces for this one. It may lie where this rank's
  // own piece lies, and overlaps the input nowhere else.
  void reduce_scatter_v(Reduction reduction, std::span<const std::byte> input,
                        std::span<const int64_t> counts,
                        std::span<std::byte> output, const Call& call = {});
  // In place.
  void all_reduce(Reduction reduction, std::span<std::byte> data,
                  const Call& call = {});

  // The output is every rank's input in order; `bytes` says how long each is.
  // The input may lie in its place of the output.
  void all_gather_v(std::span<const std::byte> input,
                    std::span<const int64_t> bytes, std::span<std::byte> output,
                    const Call& call = {});
  // The same where pieces lie in one buffer, in any order: this rank's sums
  // come where its own pieces were, and its own pieces lie there before they
  // are gathered. No pieces overlap.
  void reduce_scatter_runs(Reduction reduction, const PieceRuns& runs,
                           const Call& call = {});
  void all_gather_runs(const PieceRuns& runs, const Call& call = {});
  // Buffers do not overlap.
  void all_to_all_v(const Pieces<const std::byte>& send,
                    const Pieces<std::byte>& receive, const Call& call = {});
  void broadcast(int root, std::span<std::byte> data, const Call& call = {});
  void barrier(const Call& call = {});

  // A group for every color, ordered by key, then by rank; null for a color
  // below 0. It shares this one's options and flight record, and its ops unless
  // it is given others, which outlive it: for memory of another kind.
  std::unique_ptr<Communicator> split(int color, int key, std::string name,
                                      const Call& call = {},
                                      const WireOps* ops = nullptr);
  // A group whose operations are only issued, to this lane (lane.h); where
  // can_order() says so.
  bool can_order() const { return exchange_.transport().can_order(); }
  std::unique_ptr<Communicator> split_ordered(int color, int key,
                                              std::string name,
                                              std::shared_ptr<Lane> lane,
                                              const Call& call = {});
  // Null where operations have ended when they return.
  Lane* lane() { return exchange_.transport().lane(); }
  // Memory of the lane's device that collectives will often read and write. All
  // ranks call it; it stays as long as the group.
  void register_memory(std::span<std::byte> memory, SharedUse use) {
    exchange_.transport().register_memory(memory, use);
  }
  // Memory of a device that messages of groups split off with a lane pass
  // through more quickly; null: the device's own is as good. Given back after
  // the groups that it was registered with, before this one ends.
  std::byte* allocate(int64_t bytes) {
    return exchange_.transport().allocate(bytes);
  }
  void release(std::byte* memory) { exchange_.transport().release(memory); }

  // Ends every operation of every group on every rank with PeerLost that tells
  // the reason; the first reason stays.
  void abort(std::string_view reason);
  // The same for `error` of a thread that works in the background: what this
  // rank's other threads wait for ends with that error, not with PeerLost, so
  // that the rank does not look like one that others have let down. `doing`
  // leads the reason; empty: the error's own words are enough.
  void give_up(const std::exception_ptr& error, std::string_view doing);

  // The last word of this rank: others that still wait for it get PeerLost, as
  // they do when the communicator ends.
  void leave() { exchange_.transport().leave(); }

  // True if this rank knows already that its next operation will fail so.
  bool is_aborted() const { return exchange_.transport().is_aborted(); }
  std::string abort_reason() const {
    return exchange_.transport().abort_reason();
  }

  // This rank's number in the group that was split first: as errors call it.
  int known_as() const {
    return exchange_.known_as(exchange_.transport().rank());
  }

  // With modelled links: how long at least one of this rank's links was busy so
  // far, with messages of any group. Any thread may ask.
  bool has_links() const { return exchange_.transport().links() != nullptr; }
  std::chrono::nanoseconds links_busy() const;
  // The same of some groups alone: they are to count into `use`, which outlives
  // them.
  void count_links(LinkUse& use) { exchange_.transport().count_links(&use); }
  std::chrono::nanoseconds busy_of(const LinkUse& use) const;

  // Returns the size of the buffer that sums are staged in. It is reserved by
  // now or with the first of them.
  int64_t staging_bytes() const { return num_sum_slots(size()) * slot_; }

  const TrafficLog& traffic() const { return traffic_; }
  const FlightRecord& flight_record() const { return *flight_; }

 private:
  Communicator(Exchange exchange, const WireOps& ops,
               CommunicatorOptions options,
               std::shared_ptr<FlightRecord> flight);

  // Runs `body` as one operation: checked, counted and recorded.
  template <class Body>
  void run(const Announcement& announcement, const Call& call, Body body);
  void fail(int64_t number) noexcept;
  // Keeps an error that is this rank's own.
  void note_error(const std::exception_ptr& error);

  void require(bool right, Operation operation, const Call& call,
               const std::string& what) const;
  // UsageError unless the counts are one per rank and add up to the spans.
  void require_counts(Operation operation, const Call& call,
                      std::span<const int64_t> counts, int64_t element,
                      size_t whole, size_t own) const;

  // UsageError if `own` overlaps `whole` anywhere but in its own place.
  void require_apart(Operation operation, const Call& call,
                     std::span<const std::byte> own,
                     std::span<const std::byte> whole,
                     std::span<const int64_t> counts, int64_t element) const;

  std::unique_ptr<Communicator> split_off(int color, int key, std::string name,
                                          const Call& call, const WireOps& ops,
                                          std::shared_ptr<Lane> lane);
  void reserve_scratch();
  void add_pieces(Reduction reduction, const std::byte* input,
                  std::span<const int64_t> counts, std::byte* output);
  // Pieces by rank; without offsets one after the other.
  struct Row {
    const std::byte* data = nullptr;
    std::span<const int64_t> counts = {};
    std::span<const int64_t> offsets = {};
  };
  void post_segment(Reduction reduction, const Row& row, int64_t begin,
                    int half);
  void add_runs(Reduction reduction, const PieceRuns& runs);
  // True if every rank reads the others' pieces in place and adds them itself.
  bool adds_shown(Reduction reduction) const;
  void add_shown(Reduction reduction, const Row& row, std::byte* place);
  void gather_runs(const PieceRuns& runs);
  // UsageError unless every piece lies in the buffer.
  void require_runs(Operation operation, const Call& call,
                    const PieceRuns& runs, int64_t element) const;
  void add_segment(Reduction reduction, int half, int64_t count, bool in_place,
                   std::byte* place);
  void prepare_fast_sums();
  void fast_all_reduce(std::span<std::byte> data);
  void fast_reduce_scatter(const std::byte* input,
                           std::span<const int64_t> counts, std::byte* output);
  // Counts what this rank sends if every peer gets so many numbers of fp32.
  void count_exchange(std::span<const int64_t> counts);
  // Sets the ranks' shares of an all-reduce.
  void cut_evenly(int64_t count);
  // True if the library adds these; UsageError if it should, and cannot.
  bool is_fast(Reduction reduction, Operation operation,
               const Call& call) const;
  void gather_pieces(std::span<const std::byte> input,
                     std::span<const int64_t> bytes, std::byte* output);
  // By the library behind the transport, if it has a way: of pieces of one
  // size, with this rank's in its place.
  bool gather_at_once(std::span<const int64_t> bytes, std::byte* output);
  bool add_integers_at_once(Reduction reduction, std::span<std::byte> data);
  bool add_limbs_at_once(std::span<std::byte> data);
  bool broadcast_at_once(int root, std::span<std::byte> data);
  int64_t segment_elements(Reduction reduction) const;
  std::byte* arrival(int rank, int half) const {
    return scratch_ + (half * size() + rank) * slot_;
  }
  std::byte* staging(int rank, int half) const {
    return arrival(rank, 2 + half);
  }
  std::byte* sums() const { return arrival(0, 4); }
  std::span<const std::byte*> pieces(int half) {
    const auto n = static_cast<size_t>(size());
    return std::span(pieces_).subspan(static_cast<size_t>(half) * n, n);
  }

  const WireOps& ops_;
  CommunicatorOptions options_;
  Exchange exchange_;
  std::shared_ptr<FlightRecord> flight_;
  SignatureCheck check_;
  TrafficLog traffic_;
  int64_t sequence_ = 0;
  int64_t segment_bytes_ = 0;
  int64_t slot_ = 0;
  std::byte* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  bool scratch_is_transports_ = false;
  std::vector<const std::byte*> pieces_;  // of both halves
  std::vector<int64_t> shares_;
  bool fast_ = false;
  // With fast_reduce alone. The sum's place grows where it must lie apart.
  std::vector<int> fast_counts_;
  std::vector<std::byte> fast_sum_;
};

}  // namespace canzona
