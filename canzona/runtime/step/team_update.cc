#include "canzona/runtime/step/team_update.h"

#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

constexpr std::array kPurposes = {Purpose::kTeamNorms, Purpose::kTeamSums,
                                  Purpose::kTeamTotals, Purpose::kTeamFactors,
                                  Purpose::kTeamPasses};

size_t number_of(Purpose purpose) {
  return index(static_cast<int>(purpose) -
               static_cast<int>(Purpose::kTeamNorms));
}

bool is_same(const TeamSeat& a, const TeamSeat& b) {
  return a.members == b.members && a.member == b.member && a.head == b.head;
}

Matrices row_of(std::byte* data, int64_t count) {
  return matrices(reinterpret_cast<float*>(data), 1, count);
}

}  // namespace

TeamUpdate::TeamUpdate(Rank& rank)
    : rank_(rank), arena_(rank.engine.memory()), scope_(arena_) {
  for (size_t r = 0; r < rank.rounds.size(); ++r) add_round(r);
}

TeamUpdate::~TeamUpdate() = default;

void TeamUpdate::add_round(size_t round) {
  std::vector<Shared>& list = rounds_.emplace_back();
  std::byte* memory = rank_.store.rooms();
  for (const SharedMatrix& planned : rank_.rounds[round].shared) {
    Shared& shared = list.emplace_back();
    shared.planned = &planned;
    shared.rule =
        rank_.rules
            .of(rank_.tensor_of(rank_.kept.matrices[index(planned.kept)]))
            .rule.get();
    shared.phase = rank_.part.phase[index(planned.matrix)];
    for (const KeptState& state :
         rank_.updates.shared[round][list.size() - 1].own)
      shared.states.push_back(run_of(rank_.store.states() + state.first));
    shared.room = team_room(planned);
    shared.memory = memory;
    memory += shared.room.bytes;
    for (const Purpose purpose : kPurposes)
      shared.exchanges[number_of(purpose)] =
          team_exchange(planned, rank_.part.grid.tp, purpose);
    if (planned.is_member()) shared.transform = &transform_for(round, shared);
  }
}

void TeamUpdate::begin(int64_t step) {
  step_ = step;
  room_of_ = -1;
  for (std::vector<Shared>& round : rounds_)
    for (Shared& shared : round)
      shared.exchanges_factors =
          !shared.planned->facts.factors_at_refresh ||
          shared.rule->facts().refreshes(step, shared.phase);
}

SharedTransform& TeamUpdate::transform_for(size_t round, const Shared& shared) {
  const SharedMatrix& planned = *shared.planned;
  const KeptMatrix& kept = rank_.kept.matrices[index(planned.kept)];
  const Rule& rule = *shared.rule;
  const MatrixShape shape{kept.dims[0], kept.dims[1]};
  const TeamSeat seat{planned.size(), planned.member, planned.is_head()};
  for (Pooled& known : pool_)
    if (known.last_round != round && known.shape == shape &&
        known.rule == &rule && is_same(known.seat, seat)) {
      known.last_round = round;
      return *known.transform;
    }
  auto made = rule.share(rank_.engine, arena_, shape, seat);
  if (made == nullptr)
    throw UsageError(cat("matrix ", to_string(shape), " is shared by ",
                         seat.members, " ranks, but rule ", rule.facts().name(),
                         " cannot share it on ", rank_.engine.kind(),
                         "; plan with teams=off"));
  require_alike(planned, *made);
  pool_.push_back({shape, seat, &rule, round, std::move(made)});
  return *pool_.back().transform;
}

void TeamUpdate::require_alike(const SharedMatrix& planned,
                               const SharedTransform& transform) const {
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
        cat("matrix ",
            quoted(rank_
                       .tensor(rank_.tensor_of(
                           rank_.kept.matrices[index(planned.kept)]))
                       .name),
            ": its parameter group changes how a team shares it; plan with "
            "teams=off"));
}

Matrices TeamUpdate::strips_view(const Shared& shared,
                                 const SlotRectangle& r) const {
  const Rectangle& own = shared.planned->own;
  Matrices view =
      matrices(reinterpret_cast<float*>(in_room(shared, shared.room.strips)) +
                   (r.first_row - own.first_row) * own.num_cols + r.first_col -
                   own.first_col,
               r.num_rows, r.num_cols);
  view.row_stride = own.num_cols;
  return view;
}

void TeamUpdate::await(const ScheduleEntry& stage) {
  Shared& shared = at(index(stage.round), index(stage.shared));
  switch (stage.kind) {
    case EntryKind::kLoadStrips:
      if (std::exchange(room_of_, stage.round) != stage.round) wait(last_);
      return;
    case EntryKind::kScaleStrips:
      return wait(shared, Purpose::kTeamNorms);
    case EntryKind::kSumStrips:
      if (stage.segment == 0 && !shared.is_scaled)
        wait(shared, Purpose::kTeamNorms);
      return;
    case EntryKind::kRoundSum:
      return wait(shared, Purpose::kTeamSums);
    case EntryKind::kIterate:
      if (!shared.planned->is_head())  // a helper
        return wait(shared, Purpose::kTeamSums);
      wait(shared, Purpose::kTeamTotals);
      if (stage.segment > 0)  // its previous factor is in transit
        wait(shared, Purpose::kTeamFactors);
      return;
    default:
      if (!shared.planned->is_head()) wait(shared, Purpose::kTeamPasses);
      if (shared.planned->facts.has_helper())
        wait(shared, Purpose::kTeamFactors);
  }
}

void TeamUpdate::load(size_t round, size_t number, float* slot) {
  Shared& shared = at(round, number);
  shared.transform->begin({step_, shared.phase, shared.states});
  for (const SlotRectangle& r : shared.planned->rectangles)
    rank_.engine.copy(strips_view(shared, r),
                      matrices(slot + r.at, r.num_rows, r.num_cols));
  shared.transform->load(const_run(reinterpret_cast<const float*>(
                             in_room(shared, shared.room.strips))),
                         in_room(shared, shared.room.own_norms));
}

bool TeamUpdate::normalize(Shared& shared) {
  return shared.transform->normalize(in_room(shared, shared.room.norms),
                                     in_room(shared, shared.room.own_norms));
}

void TeamUpdate::scale(size_t round, size_t number) {
  Shared& shared = at(round, number);
  shared.is_scaled = normalize(shared);
}

void TeamUpdate::sum(size_t round, size_t number, int segment) {
  Shared& shared = at(round, number);
  if (segment == 0 && !shared.is_scaled) shared.is_scaled = normalize(shared);
  CANZONA_CHECK(shared.is_scaled, "norms of strips that stay far from 1");
  shared.transform->sum(segment, in_room(shared, shared.room.sums));
}

// Adds by the binary tree of strips: pieces are in member order.
void TeamUpdate::round_sum(size_t round, size_t number, int segment) {
  Shared& shared = at(round, number);
  const SharedMatrix& planned = *shared.planned;
  const int64_t count =
      even_extent(planned.facts.sum_elements, planned.size(), planned.member)
          .count;
  const auto piece = [&](int i) {
    return row_of(
        in_room(shared, shared.room.pieces + i * count * kBytesPerFp32), count);
  };
  for (int step = 1; step < planned.size(); step *= 2)
    for (int i = 0; i < planned.size(); i += 2 * step)
      rank_.engine.axpby(piece(i), 1.0, piece(i + step), 1.0);
  shared.transform->round(segment, in_room(shared, shared.room.pieces), count,
                          in_room(shared, shared.room.own_total));
}

void TeamUpdate::iterate(size_t round, size_t number, int segment) {
  Shared& shared = at(round, number);
  const TeamRoom& room = shared.room;
  const bool is_head = shared.planned->is_head();
  shared.transform->iterate(segment,
                            in_room(shared, is_head ? room.total : room.pieces),
                            in_room(shared, room.factor));
}

void TeamUpdate::multiply(size_t round, size_t number, int segment,
                          float* slot) {
  Shared& shared = at(round, number);
  shared.transform->multiply(
      segment, in_room(shared, shared.room.factor),
      run_of(reinterpret_cast<float*>(in_room(shared, shared.room.strips))));
  if (segment + 1 < shared.planned->facts.segments) return;
  for (const SlotRectangle& r : shared.planned->rectangles)
    rank_.engine.copy(matrices(slot + r.at, r.num_rows, r.num_cols),
                      strips_view(shared, r));
}

void TeamUpdate::exchange(const ShownEntry& shown, bool at_once) {
  const ScheduleEntry& e = *shown.entry;
  Shared& shared = at(index(e.round), index(e.shared));
  if (!is_exchanged(shared, e.purpose)) return;
  const size_t number = number_of(e.purpose);
  Courier& courier = rank_.groups.teams();
  const auto body = [this, &shared, &courier, &shown, number](
                        Communicator& group, const Call& call) {
    const TeamExchange& moved = shared.exchanges[number];
    const auto area = [&](const Extent& extent) {
      return std::span<std::byte>(in_room(shared, extent.first),
                                  index(extent.count));
    };
    const Span span(courier.track(), shown.span);
    group.all_to_all_v(
        {area(moved.source), moved.table.send_bytes, moved.table.send_offsets},
        {area(moved.target), moved.table.receive_bytes,
         moved.table.receive_offsets},
        call);
  };
  rank_.settle(courier);
  last_ = courier.run({}, body, shown.call());
  shared.works[number] = last_;
  if (at_once) wait(last_);
}

bool TeamUpdate::is_exchanged(const Shared& shared, Purpose purpose) {
  return canzona::is_exchanged(shared.planned->facts, purpose,
                               shared.exchanges_factors);
}

void TeamUpdate::wait(Shared& shared, Purpose purpose) {
  if (is_exchanged(shared, purpose)) wait(shared.works[number_of(purpose)]);
}

void TeamUpdate::wait(Work& work) { wait_in_step(rank_, work); }

}  // namespace canzona
