#include "canzona/comm/node_group.h"

#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// The sums of a node are not rounded again.
Reduction reduction_across(Reduction reduction) {
  return reduction == Reduction::kFp32SumOfBf16 ? Reduction::kFp32Sum
                                                : reduction;
}

void add_times(TrafficLog::Row& sum, const TrafficLog::Row& row, int times) {
  sum.calls += times * row.calls;
  sum.sent += times * row.sent;
  sum.sent_slow += times * row.sent_slow;
}

}  // namespace

NodeGroup::NodeGroup(std::unique_ptr<Communicator> inside,
                     std::unique_ptr<Communicator> across, const WireOps& ops)
    : inside_(std::move(inside)), across_(std::move(across)), ops_(ops) {
  offsets_.resize(static_cast<size_t>(size()));
  if (across_ == nullptr) return;
  across_counts_.resize(static_cast<size_t>(across_->size()));
  across_offsets_.resize(across_counts_.size());
  shares_.resize(static_cast<size_t>(inside_->size()));
}

int NodeGroup::rank() const {
  const int node = across_ == nullptr ? 0 : across_->rank();
  return node * inside_->size() + inside_->rank();
}

int NodeGroup::size() const {
  return inside_->size() * (across_ == nullptr ? 1 : across_->size());
}

void NodeGroup::lay_out(std::span<const int64_t> counts, int64_t element,
                        size_t whole) {
  if (counts.size() != offsets_.size())
    throw UsageError(cat(inside_->name(), ": ", counts.size(), " counts for ",
                         size(), " ranks"));
  const auto limit = static_cast<int64_t>(whole);
  int64_t next = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0 || counts[i] > (limit - next) / element)
      throw UsageError(cat(inside_->name(), ": counts are negative or above ",
                           limit, " bytes"));
    offsets_[i] = next;
    next += counts[i] * element;
  }
  if (!std::cmp_equal(next, whole))
    throw UsageError(cat(inside_->name(), ": counts of ", next,
                         " bytes, a buffer of ", whole));
  const auto step = static_cast<size_t>(inside_->size());
  auto i = static_cast<size_t>(inside_->rank());
  for (size_t node = 0; node < across_counts_.size(); ++node, i += step) {
    across_counts_[node] = counts[i];
    across_offsets_[node] = offsets_[i];
  }
}

void NodeGroup::register_memory(std::span<std::byte> memory, SharedUse use) {
  for (Communicator* group : {inside_.get(), across_.get()})
    if (group != nullptr) group->register_memory(memory, use);
}

void NodeGroup::all_gather_v(std::span<const std::byte> input,
                             std::span<const int64_t> bytes,
                             std::span<std::byte> output, const Call& call) {
  if (across_ == nullptr)
    return inside_->all_gather_v(input, bytes, output, call);
  all_gather_across(input, bytes, output, call);
  all_gather_inside(bytes, output, call);
}

void NodeGroup::all_gather_across(std::span<const std::byte> input,
                                  std::span<const int64_t> bytes,
                                  std::span<std::byte> output,
                                  const Call& call) {
  lay_out(bytes, 1, output.size());
  const auto own = static_cast<size_t>(rank());
  if (!std::cmp_equal(input.size(), bytes[own]))
    throw UsageError(cat(inside_->name(), ": this rank's count is ", bytes[own],
                         " bytes, its buffer has ", input.size()));
  std::byte* place = output.data() + offsets_[own];
  if (place != input.data()) ops_.copy(place, input.data(), bytes[own]);
  across_->all_gather_runs(across_runs(output), call);
}

void NodeGroup::all_gather_inside(std::span<const int64_t> bytes,
                                  std::span<std::byte> output,
                                  const Call& call) {
  lay_out(bytes, 1, output.size());
  inside_->all_gather_runs(inside_runs(output, bytes), call);
}

void NodeGroup::reduce_scatter_v(Reduction reduction, std::span<std::byte> data,
                                 std::span<const int64_t> counts,
                                 const Call& call) {
  if (across_ != nullptr) {
    reduce_scatter_inside(reduction, data, counts, call);
    reduce_scatter_across(reduction, data, counts, call);
    return;
  }
  const int64_t element = element_bytes(reduction);
  lay_out(counts, element, data.size());
  const auto own = static_cast<size_t>(rank());
  inside_->reduce_scatter_v(
      reduction, data, counts,
      data.subspan(static_cast<size_t>(offsets_[own]),
                   static_cast<size_t>(counts[own] * element)),
      call);
}

void NodeGroup::reduce_scatter_inside(Reduction reduction,
                                      std::span<std::byte> data,
                                      std::span<const int64_t> counts,
                                      const Call& call) {
  lay_out(counts, element_bytes(reduction), data.size());
  inside_->reduce_scatter_runs(reduction, inside_runs(data, counts), call);
}

void NodeGroup::reduce_scatter_across(Reduction reduction,
                                      std::span<std::byte> data,
                                      std::span<const int64_t> counts,
                                      const Call& call) {
  lay_out(counts, element_bytes(reduction), data.size());
  across_->reduce_scatter_runs(reduction_across(reduction), across_runs(data),
                               call);
}

std::span<std::byte> NodeGroup::cut_evenly(Reduction reduction,
                                           std::span<std::byte> data) {
  const int64_t element = element_bytes(reduction);
  const int64_t count = static_cast<int64_t>(data.size()) / element;
  const int64_t n = inside_->size(), own = inside_->rank();
  const auto begin = [&](int64_t i) { return count * i / n; };
  for (int64_t i = 0; i < n; ++i)
    shares_[static_cast<size_t>(i)] = begin(i + 1) - begin(i);
  return data.subspan(
      static_cast<size_t>(begin(own) * element),
      static_cast<size_t>(shares_[static_cast<size_t>(own)] * element));
}

template <class Body>
void NodeGroup::run_for_all_reduce(Lent& lent, const Body& body) {
  add_times(lent.row, inside_->traffic().of(lent.operation), -1);
  body();
  add_times(lent.row, inside_->traffic().of(lent.operation), 1);
}

void NodeGroup::all_reduce_inside(Reduction reduction,
                                  std::span<std::byte> data, const Call& call) {
  const std::span<std::byte> own = cut_evenly(reduction, data);
  run_for_all_reduce(summed_, [&] {
    inside_->reduce_scatter_v(reduction, data, shares_, own, call);
  });
}

void NodeGroup::all_reduce_across(Reduction reduction,
                                  std::span<std::byte> data, const Call& call) {
  across_->all_reduce(reduction_across(reduction), cut_evenly(reduction, data),
                      call);
}

void NodeGroup::all_reduce_back(Reduction reduction, std::span<std::byte> data,
                                const Call& call) {
  const std::span<std::byte> own = cut_evenly(reduction, data);
  for (int64_t& share : shares_) share *= element_bytes(reduction);
  run_for_all_reduce(gathered_,
                     [&] { inside_->all_gather_v(own, shares_, data, call); });
}

int64_t NodeGroup::staging_bytes() const {
  return inside_->staging_bytes() +
         (across_ == nullptr ? 0 : across_->staging_bytes());
}

TrafficLog::Row NodeGroup::traffic(Operation operation) const {
  TrafficLog::Row sum = inside_->traffic().of(operation);
  if (across_ == nullptr) return sum;
  add_times(sum, across_->traffic().of(operation), 1);
  for (const Lent* lent : {&summed_, &gathered_}) {
    if (operation == lent->operation) add_times(sum, lent->row, -1);
    if (operation == Operation::kAllReduce) add_times(sum, lent->row, 1);
  }
  return sum;
}

}  // namespace canzona
