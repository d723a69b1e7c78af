// A group that may span several nodes and sends every byte to each node at most
// once.
//
//   NodeGroup group(std::move(inside), std::move(across), ops);
//   group.all_gather_v(slice, bytes_of_each_rank, whole);
//
// The group's ranks are numbered node by node, with equally many on each.
// `inside` has the ranks of this node, `across` those with the same position on
// their nodes: rank = across.rank · inside.size + inside.rank. A gather goes
// across first, taking every slice to one rank of each node, which then passes
// it on inside. A scatter sums inside first, so that only one partial sum of
// each slice leaves the node.
//
// Sums are trees over the ranks of a node, then over nodes (tree_sum). They
// have the bits of a sum over all ranks at once if the number of ranks per node
// is a power of two, and other bits otherwise. bf16 travels inside nodes only:
// sums leave a node as fp32, since rounding again would change bits.
//
// Threading, errors and counts are as in the two communicators; nothing is
// allocated after construction.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "canzona/comm/communicator.h"

namespace canzona {

class NodeGroup {
 public:
  // Without `across` the group is just `inside`, with a single level.
  NodeGroup(std::unique_ptr<Communicator> inside,
            std::unique_ptr<Communicator> across, const WireOps& ops);

  int rank() const;
  int size() const;
  Communicator& inside() { return *inside_; }
  Communicator& across() { return *across_; }  // requires two levels

  // As in Communicator.
  void register_memory(std::span<std::byte> memory, SharedUse use);
  void all_gather_v(std::span<const std::byte> input,
                    std::span<const int64_t> bytes, std::span<std::byte> output,
                    const Call& call = {});
  // Sums in place: the sum replaces this rank's own piece, and all other pieces
  // are overwritten.
  void reduce_scatter_v(Reduction reduction, std::span<std::byte> data,
                        std::span<const int64_t> counts, const Call& call = {});

  // The single levels of these operations, for callers that show each by
  // itself. They require `across` and must be called in the order given above;
  // the first level of a gather takes the input.
  void all_gather_across(std::span<const std::byte> input,
                         std::span<const int64_t> bytes,
                         std::span<std::byte> output, const Call& call);
  void all_gather_inside(std::span<const int64_t> bytes,
                         std::span<std::byte> output, const Call& call);
  void reduce_scatter_inside(Reduction reduction, std::span<std::byte> data,
                             std::span<const int64_t> counts, const Call& call);
  void reduce_scatter_across(Reduction reduction, std::span<std::byte> data,
                             std::span<const int64_t> counts, const Call& call);

  // The legs of an in-place all-reduce, which require `across`: every rank of a
  // node sums an even share of `data` inside, then across, and gathers the
  // other shares inside. They must be called in this order and are counted as
  // an all-reduce.
  void all_reduce_inside(Reduction reduction, std::span<std::byte> data,
                         const Call& call);
  void all_reduce_across(Reduction reduction, std::span<std::byte> data,
                         const Call& call);
  void all_reduce_back(Reduction reduction, std::span<std::byte> data,
                       const Call& call);

  // The staging of both communicators together.
  int64_t staging_bytes() const;

  // Returns the traffic of both communicators since construction. Call it while
  // no operation is in flight.
  TrafficLog::Row traffic(Operation operation) const;

 private:
  // The traffic of another operation inside the node that belongs to an
  // all-reduce.
  struct Lent {
    Operation operation;
    TrafficLog::Row row = {};
  };
  template <class Body>
  void run_for_all_reduce(Lent& lent, const Body& body);
  // Computes the shares of a node's ranks, in elements; returns this rank's
  // share.
  std::span<std::byte> cut_evenly(Reduction reduction,
                                  std::span<std::byte> data);
  // Computes where pieces lie; throws UsageError unless they fill the buffer.
  void lay_out(std::span<const int64_t> counts, int64_t element, size_t whole);
  PieceRuns inside_runs(std::span<std::byte> data,
                        std::span<const int64_t> counts) const {
    return {data, counts, offsets_};
  }
  PieceRuns across_runs(std::span<std::byte> data) const {
    return {data, across_counts_, across_offsets_};
  }

  std::unique_ptr<Communicator> inside_, across_;
  const WireOps& ops_;
  // Offsets of the current operation: of all pieces, and of those across.
  std::vector<int64_t> offsets_, across_counts_, across_offsets_;
  std::vector<int64_t> shares_;  // of an all-reduce
  Lent summed_{Operation::kReduceScatter}, gathered_{Operation::kAllGather};
};

}  // namespace canzona
