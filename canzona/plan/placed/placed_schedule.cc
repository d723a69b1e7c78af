#include "canzona/plan/placed/placed_schedule.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/placed/placed_moves.h"
#include "canzona/plan/schedule/entries.h"

namespace canzona {
namespace {

class PlacedStatesMaker {
 public:
  explicit PlacedStatesMaker(PlacedDraft& draft)
      : draft_(draft), plan_(draft.plan), rank_(draft.rank), out_(draft.out) {}

  void make() {
    count_storage();
    find_kept_states();
    add_shard_states();
    add_elements();
    add_local();
  }

 private:
  void count_storage() {
    out_.counted.resize(plan_.tensors.size());
    for (size_t t = 0; t < plan_.tensors.size(); ++t) {
      const auto& stored = plan_.tensors[t].stored;
      int64_t at = 0;
      for (const Box& box : stored[index(rank_)]) {
        bool first = true;
        for (size_t r = 0; first && r < index(rank_); ++r)
          first = std::ranges::find(stored[r], box) == stored[r].end();
        if (first) out_.counted[t].push_back({at, box.elements()});
        at += box.elements();
      }
    }
  }

  // True if this rank updates a matrix's states that live with the shard.
  bool keeps_states_of(int32_t m) const {
    const PlacedMatrix& it = draft_.matrix(m);
    if (!plan_.options.share_states ||
        draft_.facts_of_matrix(m).applies_to_states())
      return true;
    const PlacedClass& c =
        plan_.classes[index(plan_.class_of[index(it.tensor)])];
    return PlacedDraft::line_of(c, it.owner) == PlacedDraft::line_of(c, rank_);
  }
  bool keeps_states_of_elements(const PlacedElements& it) const {
    const PlacedClass& c =
        plan_.classes[index(plan_.class_of[index(it.tensor)])];
    return PlacedDraft::line_of(c, rank_) == it.line;
  }

  // Finds, by tensor, the extents of storage whose states this rank keeps.
  void find_kept_states() {
    kept_.resize(plan_.tensors.size());
    std::vector<bool> done(plan_.tensors.size());
    for (const PlacedElements& it : plan_.elements) {
      done[index(it.tensor)] = true;
      if (keeps_states_of_elements(it))
        kept_[index(it.tensor)] = {
            {0, stored_elements(plan_, it.tensor, rank_)}};
    }
    for (int32_t t = 0; t < std::ssize(plan_.tensors); ++t)
      if (!done[index(t)] && draft_.is_element_wise(t))
        kept_[index(t)] = {{0, stored_elements(plan_, t, rank_)}};
    for (const KeptMatrix& kept : out_.kept) {
      if (!keeps_states_of(kept.matrix)) continue;
      for (const Piece& piece : kept.pieces)
        add_kept(kept_[index(draft_.matrix(kept.matrix).tensor)],
                 {piece.kept, piece.elements()});
    }
  }
  static void add_kept(std::vector<Extent>& kept, Extent next) {
    if (!kept.empty() && kept.back().end() == next.first)
      kept.back().count += next.count;
    else if (next.count > 0)
      kept.push_back(next);
  }

  // Returns the shape of the rank's box; flat if it has several.
  std::vector<int64_t> stored_shape(int32_t t) const {
    const std::vector<Box>& boxes = draft_.tensor(t).stored[index(rank_)];
    if (boxes.size() == 1) return boxes[0].count;
    return {stored_elements(plan_, t, rank_)};
  }

  // Returns a matrix's states or, for an element-wise rule, those of one
  // element.
  std::vector<StateFact> state_facts(int32_t t) const {
    if (draft_.is_element_wise(t)) return draft_.facts_of(t).states({1, 1});
    const int32_t m = plan_.first_matrix[index(t)];
    if (m == plan_.first_matrix[index(t) + 1]) return {};
    return draft_.facts_of(t).tensor_states(
        {draft_.matrix(m).rows, draft_.matrix(m).cols});
  }

  void add_shard_states() {
    for (int32_t t = 0; t < std::ssize(plan_.tensors); ++t) {
      const int64_t elements = stored_elements(plan_, t, rank_);
      if (elements == 0 || kept_[index(t)].empty()) continue;
      for (const StateFact& fact : state_facts(t)) {
        if (fact.lives != Lives::kWithShard) continue;
        CANZONA_CHECK(fact.initially == Initially::kZero, "state ", fact.name);
        out_.states_of[index(t)].push_back(
            static_cast<int32_t>(out_.states.size()));
        out_.states.push_back({.name = fact.name,
                               .tensor = t,
                               .shape = stored_shape(t),
                               .memory = draft_.add_memory(elements),
                               .kept = kept_[index(t)]});
      }
    }
  }

  void add_elements() {
    std::vector<bool> shared(plan_.tensors.size());
    for (const PlacedElements& it : plan_.elements)
      shared[index(it.tensor)] = true;
    for (int32_t t = 0; t < std::ssize(plan_.tensors); ++t) {
      const int64_t count = stored_elements(plan_, t, rank_);
      if (draft_.is_element_wise(t) && !shared[index(t)] && count > 0)
        out_.elements.push_back({t, count});
    }
  }

  void add_local() {
    std::vector<SlotMatrix> owned;
    for (int32_t k = 0; k < std::ssize(out_.kept); ++k) {
      const PlacedMatrix& it = draft_.matrix(out_.kept[index(k)].matrix);
      if (it.round >= 0 || it.owner != rank_) continue;
      SlotMatrix& whole = owned.emplace_back();
      whole.kept = k;
      whole.own = {0, it.rows, 0, it.cols};
    }
    out_.local = draft_.batches_of(owned);
  }

  PlacedDraft& draft_;
  const PlacedPlan& plan_;
  const int32_t rank_;
  PlacedSchedule& out_;
  std::vector<std::vector<Extent>> kept_;  // by tensor
};

// Adds what a rank does in every step regardless of rounds: the storage that it
// counts, states with the shard, element-wise tensors and matrices whose pieces
// never move.
void add_placed_states(PlacedDraft& draft) { PlacedStatesMaker(draft).make(); }

class PlacedActionsMaker {
 public:
  PlacedActionsMaker(PlacedDraft& draft, const PlacedExchange& exchange)
      : draft_(draft), out_(draft.out), exchange_(exchange) {}

  // Adds this rank's part of the stages of all rounds.
  void add_actions() {
    const size_t num_rounds = exchange_.position_of_round.size();
    moving_.resize(out_.rounds.size());
    if (num_rounds == 0) add_elements_and_local();
    for (const ExchangeStage& stage : exchange_order(
             static_cast<int32_t>(num_rounds), exchange_.num_slots)) {
      add_stage(stage);
      if (stage.round == 0 && stage.purpose == Purpose::kGatherMatrices)
        add_elements_and_local();
    }
    add_waits(in_rooms_);
  }

 private:
  int32_t add(PlacedAction action) {
    out_.actions.push_back(std::move(action));
    return static_cast<int32_t>(out_.actions.size()) - 1;
  }
  PlacedAction& add_compute(EntryKind kind, int32_t position, std::string label,
                            std::vector<int32_t> tensors) {
    add({.kind = kind,
         .item = position,
         .label = std::move(label),
         .tensors = std::move(tensors)});
    return out_.actions.back();
  }
  std::string label(std::string_view what, size_t position) const {
    return cat(what, " round ", out_.rounds[position].number);
  }

  void add_wait(int32_t& action) {
    if (action < 0) return;
    add({.kind = EntryKind::kWait,
         .item = action,
         .label = cat("wait for ", out_.actions[index(action)].label)});
    action = -1;
  }
  void add_waits(std::vector<int32_t>& actions) {
    for (int32_t& action : actions) add_wait(action);
    actions.clear();
  }
  int32_t add_all_to_all(size_t position, const PlacedTables& tables,
                         std::string_view what) {
    if (tables.is_empty) return -1;
    return add({.kind = EntryKind::kAllToAll,
                .label = label(what, position),
                .tensors = exchange_.tensors_in[position],
                .group = exchange_.moves[position].line_group,
                .send_at = tables.sent_at,
                .send = tables.sent,
                .receive_at = tables.received_at,
                .receive = tables.received});
  }

  // The numbers of the actions that a round waits for.
  struct OnTheWay {
    int32_t gather = -1, scatter = -1;
    std::vector<int32_t> broadcasts;
    bool is_broadcast = false;
  };

  void broadcast(size_t position, OnTheWay& moving) {
    if (std::exchange(moving.is_broadcast, true)) return;
    const PlacedMoves& moves = exchange_.moves[position];
    if (moves.set_group < 0) return;
    add_wait(moving.scatter);
    for (const PlacedBlock& block : moves.blocks)
      if (block.count > 0)
        moving.broadcasts.push_back(
            add({.kind = EntryKind::kBroadcast,
                 .label = label(cat("updates of rank ", block.root, " in"),
                                position),
                 .tensors = exchange_.tensors_in[position],
                 .group = moves.set_group,
                 .receive_at = block.at,
                 .root = block.root,
                 .count = block.count}));
  }

  void add_elements_and_local() {
    std::vector<int32_t> tensors;
    for (const ElementTensor& it : out_.elements) tensors.push_back(it.tensor);
    if (!tensors.empty())
      add_compute(EntryKind::kUpdateElements, -1, "elements",
                  std::move(tensors));
    std::set<int32_t> found;
    for (const UpdateBatch& batch : out_.local)
      for (const int32_t k : batch.members)
        found.insert(draft_.matrix(out_.kept[index(k)].matrix).tensor);
    if (!found.empty())
      add_compute(EntryKind::kUpdateMatrices, -1, "local matrices",
                  {found.begin(), found.end()});
  }

  void add_stage(const ExchangeStage& stage) {
    const bool scatters = stage.purpose == Purpose::kScatterMatrices;
    // A round's updates are broadcast to replicas one transform after they
    // arrived.
    if (scatters && stage.round > 0 && here(stage.round - 1))
      broadcast(position(stage.round - 1), moving_[position(stage.round - 1)]);
    if (!here(stage.round)) return;
    const size_t p = position(stage.round);
    OnTheWay& moving = moving_[p];
    if (stage.kind == EntryKind::kPrepare) {
      add_compute(EntryKind::kPrepare, static_cast<int32_t>(p),
                  label("prepare", p), exchange_.tensors_in[p]);
      return;
    }
    if (stage.purpose == Purpose::kGatherMatrices) {
      moving.gather = add_all_to_all(p, exchange_.moves[p].gather, "gather");
      return;
    }
    if (stage.kind == EntryKind::kTransform) {
      add_wait(moving.gather);
      return add_transforms(p);
    }
    if (scatters) {
      moving.scatter = add_all_to_all(p, exchange_.moves[p].scatter, "scatter");
      if (line_is_one(p)) broadcast(p, moving);
      return;
    }
    broadcast(p, moving);
    add_wait(moving.scatter);
    add_waits(moving.broadcasts);
    add_compute(EntryKind::kApply, static_cast<int32_t>(p), label("apply", p),
                exchange_.tensors_in[p]);
  }

  // The stages of a round's teams, and between them what this rank computes
  // alone. A stage waits for what its team has exchanged before, and so does
  // the exchange that passes on what another one brought. All rounds use the
  // same rooms: the first stage also waits for those of the round before.
  void add_transforms(size_t p) {
    const std::vector<SharedMatrix>& teams = out_.rounds[p].teams;
    std::vector<int32_t> segments;
    for (const SharedMatrix& team : teams)
      segments.push_back(team.facts.segments);
    lay_out_rooms(teams);
    add_waits(in_rooms_);
    exchanged_.assign(teams.size(), {});
    for (const TransformStage& stage : transform_order(segments)) {
      if (stage.shared < 0)
        add_alone(p, stage.segment);
      else if (stage.kind == EntryKind::kAllToAll)
        add_exchange(p, stage);
      else if (takes_part(teams[index(stage.shared)], stage.kind))
        add_team_stage(p, stage);
    }
    for (const std::vector<int32_t>& open : exchanged_)
      in_rooms_.insert(in_rooms_.end(), open.begin(), open.end());
  }

  void lay_out_rooms(const std::vector<SharedMatrix>& teams) {
    rooms_.clear();
    int64_t end = 0;
    for (const SharedMatrix& team : teams) {
      rooms_.push_back(end);
      end += team_room(team).bytes;
    }
    out_.room_bytes = std::max(out_.room_bytes, end);
  }

  void add_alone(size_t p, int32_t segment) {
    const PlacedRound& round = out_.rounds[p];
    const bool works =
        round.teams.empty() || (segment == 0 && !round.shared.empty()) ||
        std::ranges::any_of(round.batches, [&](const UpdateBatch& batch) {
          return batch.segment == segment;
        });
    if (works)
      add_compute(EntryKind::kTransform, static_cast<int32_t>(p),
                  label("transform", p), exchange_.tensors_in[p])
          .segment = segment;
  }

  std::string team_label(size_t p, const TransformStage& stage) const {
    const int32_t m = out_.rounds[p].teams[index(stage.shared)].matrix;
    return placed_matrix_name(draft_.tensor_of(m), draft_.matrix(m));
  }
  std::vector<int32_t> team_tensor(size_t p, const TransformStage& stage) {
    return {
        draft_.matrix(out_.rounds[p].teams[index(stage.shared)].matrix).tensor};
  }

  void add_team_stage(size_t p, const TransformStage& stage) {
    add_waits(exchanged_[index(stage.shared)]);
    PlacedAction& action =
        add_compute(stage.kind, static_cast<int32_t>(p),
                    cat(word_of(stage.kind), " ", team_label(p, stage)),
                    team_tensor(p, stage));
    action.team = stage.shared;
    action.segment = stage.segment;
  }

  void add_exchange(size_t p, const TransformStage& stage) {
    const SharedMatrix& team = out_.rounds[p].teams[index(stage.shared)];
    if (!is_exchanged(team.facts, stage.purpose, true)) return;
    std::vector<int32_t>& open = exchanged_[index(stage.shared)];
    if (stage.purpose == Purpose::kTeamPasses) add_waits(open);
    const TeamExchange moved =
        team_exchange(team, exchange_.moves[p].line_size, stage.purpose);
    const auto at = [](const Extent& area, std::vector<int64_t> offsets,
                       int64_t room) {
      for (int64_t& offset : offsets) offset += room + area.first;
      return offsets;
    };
    const int64_t room = rooms_[index(stage.shared)];
    PlacedAction action{.kind = EntryKind::kAllToAll,
                        .item = static_cast<int32_t>(p),
                        .label = cat("exchange ", team_label(p, stage)),
                        .tensors = team_tensor(p, stage),
                        .purpose = stage.purpose,
                        .team = stage.shared,
                        .segment = stage.segment,
                        .group = exchange_.moves[p].line_group,
                        .send = moved.table.send_bytes,
                        .receive = moved.table.receive_bytes};
    action.send_offsets = at(moved.source, moved.table.send_offsets, room);
    action.receive_offsets =
        at(moved.target, moved.table.receive_offsets, room);
    open.push_back(add(std::move(action)));
  }

  bool here(int32_t round) const {
    return exchange_.position_of_round[index(round)] >= 0;
  }
  size_t position(int32_t round) const {
    return index(exchange_.position_of_round[index(round)]);
  }
  // True if the line is a single rank; follows from the class alone, as does
  // whether a broadcast is issued at once.
  bool line_is_one(size_t p) const { return exchange_.moves[p].line_group < 0; }

  PlacedDraft& draft_;
  PlacedSchedule& out_;
  const PlacedExchange& exchange_;
  std::vector<OnTheWay> moving_;
  std::vector<int64_t> rooms_;  // of the round's teams: first bytes
  std::vector<std::vector<int32_t>> exchanged_;  // by team: not waited for yet
  std::vector<int32_t> in_rooms_;                // the same, of earlier rounds
};

// Adds the actions of the rank in order, once its rounds are known.
void add_placed_actions(PlacedDraft& draft, const PlacedExchange& exchange) {
  PlacedActionsMaker(draft, exchange).add_actions();
}

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

std::vector<Piece> placed_pieces(const PlacedPlan& plan, int32_t m,
                                 int32_t rank) {
  const PlacedMatrix& matrix = plan.matrices[index(m)];
  const PlacedTensor& tensor = plan.tensors[index(matrix.tensor)];
  const size_t r = tensor.shape.size() - 2, c = r + 1;
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (const Box& box : tensor.stored[index(rank)]) {
    const int64_t place = stack_place(tensor, box, matrix.number);
    const Extent rows = Extent{box.first[r], box.count[r]}.meet(
        {matrix.first_row, matrix.rows});
    if (place >= 0 && rows.count > 0 && box.count[c] > 0) {
      const int64_t at =
          begin +
          (place * box.count[r] + rows.first - box.first[r]) * box.count[c];
      pieces.push_back({{rows.first - matrix.first_row, rows.count,
                         box.first[c], box.count[c]},
                        at,
                        at,
                        at,
                        at});
    }
    begin += box.elements();
  }
  std::ranges::sort(pieces, {}, [](const Piece& p) {
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

bool PlacedAction::moves() const {
  const auto any = [](const std::vector<int64_t>& counts) {
    return std::ranges::any_of(counts, [](int64_t n) { return n > 0; });
  };
  return count > 0 || any(send) || any(receive);
}

std::string_view kind_text(const PlacedAction& action) {
  if (action.is_compute()) return "compute";
  if (action.is_in_rooms()) return "exchange";
  switch (action.kind) {
    case EntryKind::kAllToAll:
      return "all_to_all";
    case EntryKind::kBroadcast:
      return "broadcast";
    default:
      return "wait";
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
