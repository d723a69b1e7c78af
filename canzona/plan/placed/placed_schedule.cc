#include "canzona/plan/placed/placed_schedule.h"

#include <algorithm>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/placed/placed_actions.h"
#include "canzona/plan/placed/placed_moves.h"

namespace canzona {
namespace {

// Returns the position of a matrix in a box's own stack; -1 if it is not there.
int64_t stack_place(const PlacedTensor& tensor, const Box& box,
                    int64_t number) {
  int64_t place = 0, stride = 1;
  for (size_t d = tensor.shape.size() - 2; d-- > 0;) {
    const int64_t at = number % tensor.shape[d] - box.first[d];
    number /= tensor.shape[d];
    if (at < 0 || at >= box.count[d]) return -1;
    place += at * stride;
    stride *= box.count[d];
  }
  return place;
}

}  // namespace

std::vector<PlacedPiece> placed_pieces(const PlacedPlan& plan, int32_t m,
                                       int32_t rank) {
  const PlacedMatrix& matrix = plan.matrices[index(m)];
  const PlacedTensor& tensor = plan.tensors[index(matrix.tensor)];
  const size_t r = tensor.shape.size() - 2, c = r + 1;
  std::vector<PlacedPiece> pieces;
  int64_t begin = 0;
  for (const Box& box : tensor.stored[index(rank)]) {
    const int64_t place = stack_place(tensor, box, matrix.number);
    const Extent rows = Extent{box.first[r], box.count[r]}.meet(
        {matrix.first_row, matrix.rows});
    if (place >= 0 && rows.count > 0 && box.count[c] > 0)
      pieces.push_back(
          {{rows.first - matrix.first_row, rows.count, box.first[c],
            box.count[c]},
           m,
           begin + (place * box.count[r] + rows.first - box.first[r]) *
                       box.count[c]});
    begin += box.elements();
  }
  std::ranges::sort(pieces, {}, [](const PlacedPiece& p) {
    return std::pair(p.first_row, p.first_col);
  });
  return pieces;
}

int64_t stored_elements(const PlacedPlan& plan, int32_t tensor, int32_t rank) {
  int64_t sum = 0;
  for (const Box& box : plan.tensors[index(tensor)].stored[index(rank)])
    sum += box.elements();
  return sum;
}

int64_t PlacedState::elements() const {
  int64_t product = 1;
  for (const int64_t side : shape) product *= side;
  return product;
}

std::string_view to_string(PlacedAction::Kind kind) {
  switch (kind) {
    case PlacedAction::Kind::kAllToAll:
      return "all_to_all";
    case PlacedAction::Kind::kBroadcast:
      return "broadcast";
    case PlacedAction::Kind::kWait:
      return "wait";
    default:
      return "compute";
  }
}

PlacedSchedule make_placed_schedule(const PlacedPlan& plan, int32_t rank,
                                    int64_t width) {
  if (rank < 0 || rank >= plan.world)
    throw UsageError(cat("rank ", rank, " of a plan for ", plan.world,
                         " ranks; expected 0 to ", plan.world - 1));
  PlacedDraft draft(plan, rank, width);
  add_placed_states(draft);
  add_placed_actions(draft, add_placed_rounds(draft));
  return std::move(draft.out);
}

}  // namespace canzona
