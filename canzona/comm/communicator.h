// Collectives between the ranks of a group.
//
//   world.all_reduce(Reduction::kFp32Sum, bytes_of(gradients),
//                    {.label = "gradients of layers.3"});
//   std::unique_ptr<Communicator> tp = world.split(rank / 4, rank, "tp");
//   tp->all_gather_v(shard, bytes_of_each_rank, whole);
//
// All ranks of a group must call the same operations in the same order. Sums
// have the bits of tree_sum over the ranks in order: they do not depend on
// counts, segments or timing, and are the same on every rank. A count may be 0.
//
// An operation that cannot complete throws on every rank: PeerLost if another
// rank misses the deadline, has left or has aborted (the rank is named by its
// number in the original group); UsageError if sizes disagree. The group is
// then dead: leave it, and do not call it again.
//
// Spans belong to the caller and must stay valid until the operation returns.
// Nothing is allocated after construction, except by split. One thread at a
// time may use a communicator; any thread may call abort(). Groups are
// independent of each other.
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
#include "canzona/comm/flight_record.h"
#include "canzona/comm/link_use.h"
#include "canzona/comm/transport.h"
#include "canzona/comm/wire_ops.h"

namespace canzona {

struct CommunicatorOptions {
  std::chrono::nanoseconds deadline = std::chrono::minutes(10);
  // Sums travel in halves of a segment: one half is on the wire while the other
  // is added. The memory reserved for them is bounded (base/sum_staging.h), so
  // groups of many ranks use shorter segments. For device memory, where every
  // call has a cost, the default is the largest segment that the bound allows,
  // reserved with the first sum.
  static constexpr int64_t kUsualSegment = kUsualSumSegment;
  int64_t segment_bytes = kUsualSegment;
  // Makes ranks compare operation, label and sizes before every collective.
  bool check_collectives = false;
  // The number of consecutive ranks on a node, as numbered in the original
  // group; the traffic log uses it to tell what leaves a node. 0: unknown, and
  // no traffic counts as leaving a node.
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

// Pieces of one buffer that are summed or gathered in place, in runs of one
// piece per rank: all pieces of the first run by rank, then those of the next.
struct PieceRuns {
  std::span<std::byte> data;
  std::span<const int64_t> counts;   // elements of a sum, bytes of a gather
  std::span<const int64_t> offsets;  // in bytes
};

class Communicator {
 public:
  // `ops` must outlive the communicator.
  Communicator(std::unique_ptr<Transport> transport, const WireOps& ops,
               CommunicatorOptions options, std::string name);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return exchange_.transport().rank(); }
  int size() const { return exchange_.transport().size(); }
  const std::string& name() const { return exchange_.name(); }

  // The input is one piece per rank, of `counts` elements, in order; the output
  // is the sum of all ranks' pieces for this rank. The output may be this
  // rank's own piece of the input and must not overlap the input anywhere else.
  void reduce_scatter_v(Reduction reduction, std::span<const std::byte> input,
                        std::span<const int64_t> counts,
                        std::span<std::byte> output, const Call& call = {});
  // Sums in place.
  void all_reduce(Reduction reduction, std::span<std::byte> data,
                  const Call& call = {});

  // The output is every rank's input in order; `bytes` has the length of each.
  // The input may already lie in its place in the output.
  void all_gather_v(std::span<const std::byte> input,
                    std::span<const int64_t> bytes, std::span<std::byte> output,
                    const Call& call = {});
  // The same for pieces of one buffer, in any order: a sum replaces this rank's
  // own pieces, and a gather finds them in place. Pieces must not overlap.
  void reduce_scatter_runs(Reduction reduction, const PieceRuns& runs,
                           const Call& call = {});
  void all_gather_runs(const PieceRuns& runs, const Call& call = {});
  // Buffers must not overlap.
  void all_to_all_v(const Pieces<const std::byte>& send,
                    const Pieces<std::byte>& receive, const Call& call = {});
  void broadcast(int root, std::span<std::byte> data, const Call& call = {});
  void barrier(const Call& call = {});

  // Makes a group for every color, ordered by key, then by rank; returns null
  // for a color below 0. The group shares this one's options and flight record.
  // It also shares `ops` unless it is given others, for memory of another kind,
  // which must outlive it.
  std::unique_ptr<Communicator> split(int color, int key, std::string name,
                                      const Call& call = {},
                                      const WireOps* ops = nullptr);
  // Makes a group whose operations are only enqueued on `lane` (transport.h).
  // Requires can_order().
  bool can_order() const { return exchange_.transport().can_order(); }
  std::unique_ptr<Communicator> split_ordered(int color, int key,
                                              std::string name,
                                              std::shared_ptr<Lane> lane,
                                              const Call& call = {});
  // Returns null if operations are complete when they return.
  Lane* lane() { return exchange_.transport().lane(); }
  // Registers memory of the lane's device that collectives will often read and
  // write. All ranks must call it; the memory must live as long as the group.
  void register_memory(std::span<std::byte> memory, SharedUse use) {
    exchange_.transport().register_memory(memory, use);
  }
  // Returns device memory through which messages of groups split off with a
  // lane pass faster, or null if ordinary device memory is as good. Release it
  // after the groups that it was registered with have ended, and before this
  // one does.
  std::byte* allocate(int64_t bytes) {
    return exchange_.transport().allocate(bytes);
  }
  void release(std::byte* memory) { exchange_.transport().release(memory); }

  // Ends every operation of every group on every rank with PeerLost and this
  // reason; only the first reason is kept.
  void abort(std::string_view reason);
  // Does the same for `error` of a background thread: operations that this
  // rank's other threads wait for end with that error, not with PeerLost, so
  // that the rank does not look like a victim. `doing` prefixes the reason; if
  // empty, the error's own text is used.
  void give_up(const std::exception_ptr& error, std::string_view doing);

  // Announces that this rank will do nothing more: ranks that still wait for it
  // get PeerLost, as they do when the communicator is destroyed.
  void leave() { exchange_.transport().leave(); }

  // Returns true if this rank already knows that its next operation will throw
  // because the group was aborted.
  bool is_aborted() const { return exchange_.transport().is_aborted(); }
  std::string abort_reason() const {
    return exchange_.transport().abort_reason();
  }

  // Returns this rank's number in the original group, by which errors name it.
  int known_as() const {
    return exchange_.known_as(exchange_.transport().rank());
  }

  // With modelled links: returns how long at least one of this rank's links has
  // been busy, with messages of any group. Any thread may call.
  bool has_links() const { return exchange_.transport().links() != nullptr; }
  std::chrono::nanoseconds links_busy() const;
  // Counts the busy time of some groups only, into `use`, which must outlive
  // them.
  void count_links(LinkUse& use) { exchange_.transport().count_links(&use); }
  std::chrono::nanoseconds busy_of(const LinkUse& use) const;

  // Returns the size of the staging buffer for sums, whether it is reserved
  // already or will be with the first sum.
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
  // Records an error that this rank itself caused.
  void note_error(const std::exception_ptr& error);

  void require(bool right, Operation operation, const Call& call,
               const std::string& what) const;
  // Throws UsageError unless there is one count per rank and they add up to the
  // spans.
  void require_counts(Operation operation, const Call& call,
                      std::span<const int64_t> counts, int64_t element,
                      size_t whole, size_t own) const;

  // Throws UsageError if `own` overlaps `whole` anywhere but in its own place.
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
  // Pieces by rank; without offsets they are consecutive.
  struct Row {
    const std::byte* data = nullptr;
    std::span<const int64_t> counts = {};
    std::span<const int64_t> offsets = {};
  };
  void post_segment(Reduction reduction, const Row& row, int64_t begin,
                    int half);
  void add_runs(Reduction reduction, const PieceRuns& runs);
  // Returns true if every rank reads the others' pieces in place and adds them
  // itself.
  bool adds_shown(Reduction reduction) const;
  void add_shown(Reduction reduction, const Row& row, std::byte* place);
  void gather_runs(const PieceRuns& runs);
  // Throws UsageError unless every piece lies inside the buffer.
  void require_runs(Operation operation, const Call& call,
                    const PieceRuns& runs, int64_t element) const;
  void add_segment(Reduction reduction, int half, int64_t count, bool in_place,
                   std::byte* place);
  // Sets the ranks' shares of an all-reduce.
  void cut_evenly(int64_t count);
  void gather_pieces(std::span<const std::byte> input,
                     std::span<const int64_t> bytes, std::byte* output);
  // Uses the library behind the transport and returns false if it has no such
  // operation. Requires pieces of equal size, with this rank's own in its
  // place.
  bool gather_at_once(std::span<const int64_t> bytes, std::byte* output);
  bool add_integers_at_once(Reduction reduction, std::span<std::byte> data);
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
  std::vector<const std::byte*> pieces_;  // in both halves
  std::vector<int64_t> shares_;
};

}  // namespace canzona
