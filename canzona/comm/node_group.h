// A group that may reach over several nodes, and sends every byte at most once
// to each of them.
//
//   NodeGroup group(std::move(inside), std::move(across), ops);
//   group.all_gather_v(slice, bytes_of_each_rank, whole);
//
// The group's ranks are numbered node by node, equally many on each. `inside`
// has those of this rank's node, `across` those that stand where it stands on
// their nodes: rank = across.rank · inside.size + inside.rank. A gather goes
// across first, every slice to one rank of each node, which then passes it on
// inside. A scatter sums inside first, so that one partial sum of each slice
// leaves the node.
//
// Sums are trees over the ranks of a node, then over nodes (tree_sum): the
// bits of a sum over all ranks at once where a node has a power of two of them,
// other ones where it has not. bf16 travels inside nodes only: sums of a node
// leave it as fp32, since another rounding would change bits.
//
// Threads, errors and counts are those of the two communicators; nothing is
// allocated after construction.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "canzona/comm/communicator.h"

namespace canzona {

class NodeGroup {
 public:
  // Without `across` the group is `inside`, and all exchange with all.
  NodeGroup(std::unique_ptr<Communicator> inside,
            std::unique_ptr<Communicator> across, const WireOps& ops);

  int rank() const;
  int size() const;
  Communicator& inside() { return *inside_; }
  Communicator& across() { return *across_; }  // only in two levels

  // As of Communicator.
  void register_memory(std::span<std::byte> memory, SharedUse use);
  void all_gather_v(std::span<const std::byte> input,
                    std::span<const int64_t> bytes, std::span<std::byte> output,
                    const Call& call = {});
  // In place: the sum comes where this rank's own piece was. All other pieces
  // are spoilt.
  void reduce_scatter_v(Reduction reduction, std::span<std::byte> data,
                        std::span<const int64_t> counts, const Call& call = {});

  // One level of these, for whoever shows each by itself; with `across` alone,
  // and in the order above. The first level of a gather takes the input.
  void all_gather_across(std::span<const std::byte> input,
                         std::span<const int64_t> bytes,
                         std::span<std::byte> output, const Call& call);
  void all_gather_inside(std::span<const int64_t> bytes,
                         std::span<std::byte> output, const Call& call);
  void reduce_scatter_inside(Reduction reduction, std::span<std::byte> data,
                             std::span<const int64_t> counts, const Call& call);
  void reduce_scatter_across(Reduction reduction, std::span<std::byte> data,
                             std::span<const int64_t> counts, const Call& call);

  // The legs of an all-reduce in place, with `across` alone: every rank of a
  // node sums an even share of `data` inside, then across, and gathers the
  // others' inside. Called in this order; counted as an all-reduce.
  void all_reduce_inside(Reduction reduction, std::span<std::byte> data,
                         const Call& call);
  void all_reduce_across(Reduction reduction, std::span<std::byte> data,
                         const Call& call);
  void all_reduce_back(Reduction reduction, std::span<std::byte> data,
                       const Call& call);

  // The sum of both communicators' staging.
  int64_t staging_bytes() const;

  // The traffic of both communicators since the beginning. Call it while
  // nothing is under way.
  TrafficLog::Row traffic(Operation operation) const;

 private:
  // The traffic that an all-reduce had by another operation, inside the node.
  struct Lent {
    Operation operation;
    TrafficLog::Row row = {};
  };
  template <class Body>
  void run_for_all_reduce(Lent& lent, const Body& body);
  // Sets the shares of a node's ranks, in elements; returns this rank's.
  std::span<std::byte> cut_evenly(Reduction reduction,
                                  std::span<std::byte> data);
  // Writes down where pieces lie; UsageError unless they fill the buffer.
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
  // The offsets of the operation under way: of all pieces, and of those across.
  std::vector<int64_t> offsets_, across_counts_, across_offsets_;
  std::vector<int64_t> shares_;  // of an all-reduce
  Lent summed_{Operation::kReduceScatter}, gathered_{Operation::kAllGather};
};

}  // namespace canzona
