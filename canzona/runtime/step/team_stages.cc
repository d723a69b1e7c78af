#include "canzona/runtime/step/team_stages.h"

#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/runs.h"
#include "canzona/runtime/step/matrix_stages.h"

namespace canzona::runtime {
namespace {

bool is_same(const TeamSeat& a, const TeamSeat& b) {
  return a.members == b.members && a.member == b.member && a.head == b.head;
}

Matrices row_of(std::byte* data, int64_t count) {
  return matrices(reinterpret_cast<float*>(data), 1, count);
}

Matrices slot_view(Run slot, const SlotRectangle& r) {
  return as_matrices(advanced(slot, r.at), r.num_rows, r.num_cols);
}

}  // namespace

TeamStages::TeamStages(Engine& engine,
                       std::vector<std::vector<TeamWork>> rounds)
    : engine_(engine), arena_(engine.memory()), scope_(arena_) {
  for (std::vector<TeamWork>& works : rounds) {
    const size_t round = rounds_.size();
    std::vector<Shared>& list = rounds_.emplace_back();
    for (TeamWork& work : works) {
      Shared& shared = list.emplace_back();
      shared.work = std::move(work);
      shared.room = team_room(*shared.work.planned);
      if (shared.work.planned->is_member())
        shared.transform = &transform_for(round, shared.work);
    }
  }
}

TeamStages::~TeamStages() = default;

SharedTransform& TeamStages::transform_for(size_t round, const TeamWork& work) {
  const SharedMatrix& planned = *work.planned;
  const Rule& rule = *work.rule;
  const TeamSeat seat{planned.size(), planned.member, planned.is_head()};
  for (Pooled& known : pool_)
    if (known.last_round != round && known.shape == planned.shape &&
        known.rule == &rule && is_same(known.seat, seat)) {
      known.last_round = round;
      return *known.transform;
    }
  auto made = rule.share(engine_, arena_, planned.shape, seat);
  if (made == nullptr)
    throw UsageError(cat("matrix ", to_string(planned.shape), " is shared by ",
                         seat.members, " ranks, but rule ", rule.facts().name(),
                         " cannot share it on ", engine_.kind(),
                         "; plan with teams=off"));
  require_alike(work, *made);
  pool_.push_back({planned.shape, seat, &rule, round, std::move(made)});
  return *pool_.back().transform;
}

void TeamStages::require_alike(const TeamWork& work,
                               const SharedTransform& transform) {
  const SharedMatrix& planned = *work.planned;
  const StripFacts& facts = planned.facts;
  const MatrixShape piece = transform.piece();
  const bool alike = piece.rows == planned.own.num_rows &&
                     piece.cols == planned.own.num_cols &&
                     transform.segments() == facts.segments &&
                     transform.part_bytes() * planned.size() ==
                         facts.norm_bytes * facts.strips &&
                     transform.sum_elements() == facts.sum_elements &&
                     transform.bytes_per_sum() == kBytesPerFp32 &&
                     transform.bytes_per_rounded() == facts.rounded_bytes &&
                     transform.factor_bytes() == facts.factor_bytes;
  if (!alike)
    throw UsageError(
        cat("matrix ", quoted(work.tensor),
            ": its parameter group changes how a team shares it; plan with "
            "teams=off"));
}

Matrices TeamStages::strips_view(const Shared& shared, const SlotRectangle& r) {
  const Rectangle& own = shared.work.planned->own;
  Matrices view =
      matrices(reinterpret_cast<float*>(in_room(shared, shared.room.strips)) +
                   (r.first_row - own.first_row) * own.num_cols + r.first_col -
                   own.first_col,
               r.num_rows, r.num_cols);
  view.row_stride = own.num_cols;
  return view;
}

void TeamStages::load(size_t round, size_t number, int64_t step, Run slot) {
  Shared& shared = at(round, number);
  shared.transform->begin(
      {step, shared.work.planned->phase, shared.work.states});
  for (const SlotRectangle& r : shared.work.planned->rectangles)
    copy_or_convert(engine_, strips_view(shared, r), slot_view(slot, r));
  shared.transform->load(run_of(reinterpret_cast<const float*>(
                             in_room(shared, shared.room.strips))),
                         in_room(shared, shared.room.own_norms));
}

bool TeamStages::normalize(Shared& shared) {
  return shared.transform->normalize(in_room(shared, shared.room.norms),
                                     in_room(shared, shared.room.own_norms));
}

void TeamStages::scale(size_t round, size_t number) {
  Shared& shared = at(round, number);
  shared.is_scaled = normalize(shared);
}

void TeamStages::sum(size_t round, size_t number, int segment) {
  Shared& shared = at(round, number);
  if (segment == 0 && !shared.is_scaled) shared.is_scaled = normalize(shared);
  CANZONA_CHECK(shared.is_scaled, "norms of strips that stay far from 1");
  shared.transform->sum(segment, in_room(shared, shared.room.sums));
}

// Adds by the binary tree of strips: pieces are in member order.
void TeamStages::round_sum(size_t round, size_t number, int segment) {
  Shared& shared = at(round, number);
  const SharedMatrix& planned = *shared.work.planned;
  const int64_t count =
      even_extent(planned.facts.sum_elements, planned.size(), planned.member)
          .count;
  const auto piece = [&](int i) {
    return row_of(
        in_room(shared, shared.room.pieces + i * count * kBytesPerFp32), count);
  };
  for (int step = 1; step < planned.size(); step *= 2)
    for (int i = 0; i < planned.size(); i += 2 * step)
      engine_.axpby(piece(i), 1.0, piece(i + step), 1.0);
  shared.transform->round(segment, in_room(shared, shared.room.pieces), count,
                          in_room(shared, shared.room.own_total));
}

void TeamStages::iterate(size_t round, size_t number, int segment) {
  Shared& shared = at(round, number);
  const TeamRoom& room = shared.room;
  const bool is_head = shared.work.planned->is_head();
  shared.transform->iterate(segment,
                            in_room(shared, is_head ? room.total : room.pieces),
                            in_room(shared, room.factor));
}

void TeamStages::multiply(size_t round, size_t number, int segment, Run slot) {
  Shared& shared = at(round, number);
  shared.transform->multiply(
      segment, in_room(shared, shared.room.factor),
      run_of(reinterpret_cast<float*>(in_room(shared, shared.room.strips))));
  if (segment + 1 < shared.work.planned->facts.segments) return;
  for (const SlotRectangle& r : shared.work.planned->updates)
    copy_or_convert(engine_, slot_view(slot, r), strips_view(shared, r));
}

void TeamStages::run(EntryKind kind, size_t round, size_t team, int segment,
                     int64_t step, Run slot) {
  switch (kind) {
    case EntryKind::kLoadStrips:
      return load(round, team, step, slot);
    case EntryKind::kScaleStrips:
      return scale(round, team);
    case EntryKind::kSumStrips:
      return sum(round, team, segment);
    case EntryKind::kRoundSum:
      return round_sum(round, team, segment);
    case EntryKind::kIterate:
      return iterate(round, team, segment);
    case EntryKind::kMultiplyStrips:
      return multiply(round, team, segment, slot);
    default:
      CANZONA_CHECK(false, "no stage of a team");
  }
}

}  // namespace canzona::runtime
