#include "canzona/plan/placed/placed_moves.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "canzona/plan/schedule/entries.h"

namespace canzona {

PlacedDraft::PlacedDraft(const PlacedPlan& the_plan, int32_t the_rank,
                         int64_t width)
    : plan(the_plan),
      rank(the_rank),
      width_(std::max<int64_t>(width, 1)),
      facts_(group_facts(the_plan.groups)),
      shares_(the_plan) {
  out.rank = rank;
  out.states_of.resize(plan.tensors.size());
  find_groups();
  find_kept();
}

int32_t PlacedDraft::add_group(const std::vector<int32_t>& ranks) {
  if (ranks.size() < 2) return -1;
  const auto [place, added] =
      group_number_.try_emplace(ranks, static_cast<int32_t>(out.groups.size()));
  if (added) out.groups.push_back(ranks);
  return place->second;
}
// Makes the same list on every rank.
void PlacedDraft::find_groups() {
  for (const PlacedClass& c : plan.classes) {
    for (const auto& line : c.lines) add_group(line);
    for (const auto& set : c.replicas) add_group(set);
  }
}

int32_t PlacedDraft::add_memory(int64_t elements) {
  out.memories.push_back(elements);
  return static_cast<int32_t>(out.memories.size()) - 1;
}

void PlacedDraft::find_kept() {
  for (int32_t m = 0; m < std::ssize(plan.matrices); ++m) {
    std::vector<Piece> pieces = placed_pieces(plan, m, rank);
    if (pieces.empty() && matrix(m).owner != rank) continue;
    KeptMatrix& kept = out.kept.emplace_back();
    kept.matrix = m;
    kept.dims = {matrix(m).rows, matrix(m).cols};
    kept.pieces = std::move(pieces);
  }
}

int32_t PlacedDraft::kept_of(int32_t m) const {
  return static_cast<int32_t>(
      std::ranges::lower_bound(out.kept, m, {}, &KeptMatrix::matrix) -
      out.kept.begin());
}

std::vector<UpdateBatch> PlacedDraft::batches_of(
    const std::vector<SlotMatrix>& computed) {
  std::vector<ComputedMatrix> found;
  for (const SlotMatrix& one : computed) {
    const PlacedMatrix& it = matrix(out.kept[index(one.kept)].matrix);
    const PlacedTensor& of = tensor(it.tensor);
    found.push_back({one.kept, one.block, one.own.num_rows, one.own.num_cols,
                     it.phase, of.group, static_cast<int32_t>(of.dtype)});
  }
  std::vector<UpdateBatch> batches = canzona::batches_of(found, width_);
  for (UpdateBatch& batch : batches) add_owner_states(batch);
  return batches;
}

int64_t PlacedDraft::work_of(const UpdateBatch& batch) {
  int64_t sum = 0;
  for (size_t i = 0; i < batch.members.size(); ++i) {
    const size_t m = index(out.kept[index(batch.members[i])].matrix);
    const MatrixCost& whole = plan.matrices[m].cost;
    sum +=
        (batch.blocks[i] < 0 ? whole
                             : shares_.blocks(m).cost(whole, batch.blocks[i]))
            .every_step.value();
  }
  return sum;
}

PlacedState PlacedDraft::owned_state(const StateFact& fact, int32_t m,
                                     int32_t memory, int64_t at) const {
  return {.name = fact.name,
          .tensor = matrix(m).tensor,
          .matrix = m,
          .shape = fact.shape,
          .initially = fact.initially,
          .memory = memory,
          .at = at};
}

void PlacedDraft::add_owner_states(UpdateBatch& batch) {
  const auto count = std::ssize(batch.members);
  const RuleFacts& rule = *facts_[index(batch.rule)];
  for (int64_t i = 0; i < count; ++i) {
    const PlacedMatrix& it =
        matrix(out.kept[index(batch.members[index(i)])].matrix);
    batch.in_matrix.push_back(
        batch.blocks[index(i)] < 0
            ? std::vector<BlockState>()
            : rule.block_states({it.rows, it.cols}, batch.blocks[index(i)]));
  }
  for (StateFact& fact : rule.tensor_states(batch.dims)) {
    if (fact.lives != Lives::kWithOwner) continue;
    const int32_t memory = add_memory(count * fact.elements());
    for (int64_t i = 0; i < count; ++i) {
      PlacedState& state = out.states.emplace_back(
          owned_state(fact, out.kept[index(batch.members[index(i)])].matrix,
                      memory, i * fact.elements()));
      if (batch.blocks[index(i)] >= 0) {
        state.in_matrix = batch.in_matrix[index(i)][batch.owned.size()];
        state.name = state.in_matrix.name;
      }
    }
    batch.owned.push_back(
        {std::make_shared<const StateFact>(std::move(fact)), 0, memory});
  }
}

SharedStates PlacedDraft::states_of(const SharedMatrix& team) {
  SharedStates states{team.kept, {}, {}, {}};
  if (!team.is_member()) return states;
  const PlacedMatrix& it = matrix(team.matrix);
  for (TeamState& state :
       facts_of_matrix(team.matrix)
           .team_states({it.rows, it.cols}, team.size(), team.member)) {
    const int32_t memory = add_memory(state.own.elements());
    PlacedState& placed =
        out.states.emplace_back(owned_state(state.own, team.matrix, memory, 0));
    placed.name = state.in_matrix.name;
    placed.in_matrix = state.in_matrix;
    placed.is_given = state.given;
    states.own.push_back(
        {std::make_shared<const StateFact>(std::move(state.own)), 0, memory});
    states.in_matrix.push_back(std::move(state.in_matrix));
    states.given.push_back(state.given);
  }
  return states;
}

namespace {

struct RoundMembers {
  int32_t in_class = 0;
  std::vector<int32_t> matrices;
  std::vector<int32_t> elements;  // indices into plan.elements
};

// Returns every round of every class, in the global order.
std::vector<RoundMembers> all_rounds(const PlacedPlan& plan) {
  std::vector<RoundMembers> rounds;
  std::vector<size_t> first;
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    first.push_back(rounds.size());
    for (int32_t k = 0; k < plan.classes[c].num_rounds; ++k)
      rounds.push_back({static_cast<int32_t>(c), {}, {}});
  }
  const auto of = [&](int32_t tensor, int32_t round) -> RoundMembers& {
    return rounds.at(first[index(plan.class_of[index(tensor)])] + index(round));
  };
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const PlacedMatrix& matrix = plan.matrices[m];
    if (matrix.round >= 0)
      of(matrix.tensor, matrix.round)
          .matrices.push_back(static_cast<int32_t>(m));
  }
  for (size_t e = 0; e < plan.elements.size(); ++e)
    of(plan.elements[e].tensor, plan.elements[e].round)
        .elements.push_back(static_cast<int32_t>(e));
  return rounds;
}

class PlacedRoundsMaker {
 public:
  explicit PlacedRoundsMaker(PlacedDraft& draft)
      : draft_(draft), plan_(draft.plan), rank_(draft.rank), out_(draft.out) {}

  PlacedExchange make() {
    const std::vector<RoundMembers> rounds = all_rounds(plan_);
    find_num_slots();
    exchange_.position_of_round.assign(rounds.size(), -1);
    std::vector<int64_t> sizes(index(exchange_.num_slots), 0);
    for (size_t g = 0; g < rounds.size(); ++g) add_round(g, rounds[g], sizes);
    place_slots(sizes);
    return std::move(exchange_);
  }

 private:
  // The part of a matrix that one rank computes: all of it, its strips if a
  // team shares it, or one block.
  struct Share {
    int32_t matrix = 0;
    Rectangle within;
    int32_t number = 0;  // among the shares of the matrix
    int32_t block = -1;
    bool is_alone = true;
  };
  using SharesByOwner = std::map<int32_t, std::vector<Share>>;
  // The matrices and blocks that this rank computes alone, by number, and the
  // teams of its line, by matrix.
  struct Computed {
    std::map<std::pair<int32_t, int32_t>, SlotMatrix> alone;
    std::map<int32_t, SharedMatrix> teams;
  };

  void find_num_slots() {
    exchange_.num_slots = kExchangeSlots;
    for (const PlacedClass& c : plan_.classes)
      for (const auto& line : c.lines)
        if (c.lines.size() > 1 && line.size() > 1)
          exchange_.num_slots = kExchangeSlots + 1;
  }

  void add_round(size_t g, const RoundMembers& members,
                 std::vector<int64_t>& sizes) {
    const PlacedClass& c = plan_.classes[index(members.in_class)];
    const std::vector<int32_t>* set = PlacedDraft::set_of(c, rank_);
    if (set == nullptr) return;
    const auto slot =
        static_cast<int32_t>(index(g) % index(exchange_.num_slots));
    PlacedRound round;
    round.number = static_cast<int32_t>(g);
    PlacedMoves moves;
    moves.slot = slot;
    sizes[index(slot)] =
        std::max(sizes[index(slot)], lay_out(c, *set, members, round, moves));
    exchange_.position_of_round[g] = static_cast<int32_t>(out_.rounds.size());
    out_.rounds.push_back(std::move(round));
    exchange_.moves.push_back(std::move(moves));
    exchange_.tensors_in.push_back(tensors_in(members));
  }

  std::vector<int32_t> tensors_in(const RoundMembers& members) const {
    std::set<int32_t> found;
    for (int32_t m : members.matrices) found.insert(draft_.matrix(m).tensor);
    for (int32_t e : members.elements)
      found.insert(plan_.elements[index(e)].tensor);
    return {found.begin(), found.end()};
  }

  // Lays out a slot that begins at 0; returns its size.
  int64_t lay_out(const PlacedClass& c, const std::vector<int32_t>& set,
                  const RoundMembers& members, PlacedRound& round,
                  PlacedMoves& moves) {
    const int32_t own_line = PlacedDraft::line_of(c, rank_);
    const std::vector<int32_t>& line = c.lines[index(own_line)];
    moves.line_group = draft_.add_group(line);
    moves.set_group = draft_.add_group(set);
    moves.line_size = static_cast<int32_t>(line.size());
    SharesByOwner owned_by;
    Computed computed;
    for (int32_t m : members.matrices) {
      add_shares(m, owned_by);
      if (std::ranges::binary_search(line, draft_.matrix(m).owner)) {
        add_team(m, line, computed);
        if (moves_at_all(m))
          moves.gather.is_empty = moves.scatter.is_empty = false;
      }
    }
    const std::vector<Share> mine = owned_by[rank_];
    for (const Share& share : mine) add_computed(share, computed);
    const int64_t end_of_x = place_whole(line, mine, computed, moves);
    const int64_t end_of_s = place_sent(line, owned_by, end_of_x, round, moves);
    int64_t end = end_of_s;
    moves.blocks.resize(set.size());
    const auto place_block = [&](int32_t l, int64_t from) {
      const bool own = l == own_line;
      const std::vector<int32_t>& owners = c.lines[index(l)];
      int64_t at = place_updates(owners, set[index(l)], owned_by, from, own,
                                 computed, round, moves);
      at = place_elements(members, l, own, at, round);
      moves.blocks[index(l)] = {set[index(l)], from, at - from};
      end = std::max(end, at);
      if (!own) prepare_states(owners, owned_by, round);
    };
    place_block(own_line, end_of_x);
    for (int32_t l = 0; l < std::ssize(set); ++l)
      if (l != own_line) place_block(l, aligned_elements(end));
    for (auto& [key, one] : computed.alone)
      round.computed.push_back(std::move(one));
    round.batches = draft_.batches_of(round.computed);
    for (auto& [m, team] : computed.teams) {
      round.team_states.push_back(draft_.states_of(team));
      round.teams.push_back(std::move(team));
    }
    choose_segments(round);
    return aligned_elements(end);
  }

  void add_shares(int32_t m, SharesByOwner& owned_by) {
    const PlacedMatrix& it = draft_.matrix(m);
    if (it.team.empty()) {
      owned_by[it.owner].push_back({m, {0, it.rows, 0, it.cols}});
      return;
    }
    int32_t number = 0;
    for (const MatrixShare& share : draft_.shares().shares(index(m)))
      for (size_t r = 0; r < share.rectangles.size(); ++r)
        owned_by[share.t].push_back(
            {m, share.rectangles[r], number++,
             share.blocks.empty() ? -1 : share.blocks[r], false});
  }
  // Every rank of the line knows the teams of a round.
  void add_team(int32_t m, const std::vector<int32_t>& line,
                Computed& computed) {
    if (!draft_.shares().is_team(index(m))) return;
    SharedMatrix team = draft_.shares().shared_matrix(index(m), line, rank_);
    team.kept = draft_.kept_of(m);
    computed.teams.emplace(m, std::move(team));
  }
  void add_computed(const Share& share, Computed& computed) const {
    if (computed.teams.contains(share.matrix)) return;
    SlotMatrix& one = computed.alone[{share.matrix, share.block}];
    one.kept = draft_.kept_of(share.matrix);
    one.block = share.block;
    one.own = share.within;
  }

  // Spreads what this rank computes alone over the segments of teams.
  void choose_segments(PlacedRound& round) const {
    int32_t segments = 1;
    for (const SharedMatrix& team : round.teams)
      segments = std::max(segments, team.facts.segments);
    std::vector<int64_t> work;
    for (const UpdateBatch& batch : round.batches)
      work.push_back(draft_.work_of(batch));
    const std::vector<int32_t> of = spread_over_segments(work, segments);
    for (size_t b = 0; b < of.size(); ++b) round.batches[b].segment = of[b];
  }

  // Adds where fields of `part`, in the matrix, lie in W.
  static void add_fields(const Share& share, Rectangle part, int64_t at,
                         Computed& computed) {
    target(share, part, computed).first->push_back({part, at, part.elements()});
  }
  static void add_update(const Share& share, Rectangle part, int64_t at,
                         Computed& computed) {
    target(share, part, computed).second->push_back({part, at, 0});
  }
  // Makes `part` relative to a block; returns the lists for it.
  static std::pair<std::vector<SlotRectangle>*, std::vector<SlotRectangle>*>
  target(const Share& share, Rectangle& part, Computed& computed) {
    const auto team = computed.teams.find(share.matrix);
    if (team != computed.teams.end())
      return {&team->second.rectangles, &team->second.updates};
    part.first_row -= share.within.first_row;
    part.first_col -= share.within.first_col;
    SlotMatrix& one = computed.alone.at({share.matrix, share.block});
    return {&one.rectangles, &one.updates};
  }

  // Calls place(part of the share, number of the piece, whole piece) for what a
  // rank stores of a share.
  template <class Place>
  static void for_each_part(const Share& share,
                            const std::vector<Piece>& pieces,
                            const Place& place) {
    for (size_t p = 0; p < pieces.size(); ++p)
      if (const Rectangle part = meet(pieces[p], share.within);
          part.elements() > 0)
        place(part, static_cast<int32_t>(p), pieces[p]);
  }
  // The same for this rank; does nothing if it stores none of the matrix.
  template <class Place>
  void for_each_own_part(const Share& share, const Place& place) const {
    const int32_t k = draft_.kept_of(share.matrix);
    if (k == std::ssize(out_.kept) ||
        out_.kept[index(k)].matrix != share.matrix)
      return;
    for_each_part(share, out_.kept[index(k)].pieces,
                  [&](const Rectangle& part, int32_t p, const Piece& piece) {
                    place(SlotPiece{{piece, -1, piece.elements()}, k, p}, part);
                  });
  }
  // Adds a piece that lies at one place, or a part of one that is sent to
  // several owners, whose parts come in the order of the shares.
  static void add_piece(const Share& share, SlotPiece piece,
                        const Rectangle& part, int64_t at,
                        std::vector<SlotPiece>& pieces) {
    if (share.is_alone) {
      piece.at = at;
      pieces.push_back(std::move(piece));
      return;
    }
    const auto known = std::ranges::find_if(pieces, [&](const SlotPiece& one) {
      return one.kept == piece.kept && one.piece == piece.piece;
    });
    SlotPiece& whole =
        known != pieces.end() ? *known : pieces.emplace_back(std::move(piece));
    whole.parts.push_back({part, at, part.elements()});
  }

  bool moves_at_all(int32_t m) const {
    return std::ranges::any_of(
        draft_.shares().shares(index(m)), [&](const MatrixShare& share) {
          return elements_within(plan_, m, share.t, share.rectangles) <
                 share.elements();
        });
  }
  int64_t fields_of(const Share& share) const {
    return draft_.facts_of_matrix(share.matrix).gather_fields();
  }

  // Places W, and X if it is separate; returns the end of both.
  int64_t place_whole(const std::vector<int32_t>& line,
                      const std::vector<Share>& mine, Computed& computed,
                      PlacedMoves& moves) {
    moves.gather.received.assign(line.size(), 0);
    moves.scatter.sent.assign(line.size(), 0);
    const bool in_place = std::ranges::all_of(
        mine, [this](const Share& share) { return fields_of(share) == 1; });
    int64_t at = 0;
    const auto place = [&](int32_t sender) {
      for (const Share& share : mine)
        for_each_part(share, placed_pieces(plan_, share.matrix, sender),
                      [&](const Rectangle& part, int32_t, const Piece&) {
                        add_fields(share, part, at, computed);
                        at += part.elements() * fields_of(share);
                      });
    };
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == rank_) continue;
      const int64_t first = at;
      place(line[i]);
      moves.gather.received[i] = at - first;
    }
    place(rank_);
    const int64_t end_of_w = aligned_elements(at);
    moves.scatter.sent_at = at = in_place ? 0 : end_of_w;
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == rank_) continue;
      const int64_t first = at;
      for (const Share& share : mine)
        for_each_part(share, placed_pieces(plan_, share.matrix, line[i]),
                      [&](const Rectangle& part, int32_t, const Piece&) {
                        add_update(share, part, at, computed);
                        at += part.elements();
                      });
      moves.scatter.sent[i] = at - first;
    }
    return in_place ? end_of_w : aligned_elements(at);
  }

  // Places S, and the rank's own pieces of what it computes, which are last in
  // W.
  int64_t place_sent(const std::vector<int32_t>& line,
                     const SharesByOwner& owned_by, int64_t first,
                     PlacedRound& round, PlacedMoves& moves) {
    moves.gather.sent.assign(line.size(), 0);
    moves.gather.sent_at = first;
    int64_t at = first;
    for (size_t i = 0; i < line.size(); ++i) {
      const auto list = owned_by.find(line[i]);
      if (list == owned_by.end() || line[i] == rank_) continue;
      const int64_t begin = at;
      for (const Share& share : list->second) at = prepare(share, at, round);
      moves.gather.sent[i] = at - begin;
    }
    int64_t own = 0;
    for (const int64_t count : moves.gather.received) own += count;
    if (const auto mine = owned_by.find(rank_); mine != owned_by.end())
      for (const Share& share : mine->second) own = prepare(share, own, round);
    return at;
  }
  int64_t prepare(const Share& share, int64_t at, PlacedRound& round) const {
    for_each_own_part(share, [&](SlotPiece piece, const Rectangle& part) {
      add_piece(share, std::move(piece), part, at, round.prepared);
      at += part.elements() * fields_of(share);
    });
    return at;
  }

  // Advances the states that this rank keeps of matrices gathered by another
  // line.
  void prepare_states(const std::vector<int32_t>& line,
                      const SharesByOwner& owned_by, PlacedRound& round) const {
    for (int32_t o : line) {
      const auto list = owned_by.find(o);
      if (list == owned_by.end()) continue;
      for (const Share& share : list->second) {
        const int32_t m = share.matrix;
        if (share.number > 0 || plan_.options.share_states ||
            draft_.facts_of_matrix(m).applies_to_states() ||
            out_.states_of[index(draft_.matrix(m).tensor)].empty())
          continue;
        const PlacedMatrix& it = draft_.matrix(m);
        for_each_own_part({m, {0, it.rows, 0, it.cols}},
                          [&](SlotPiece piece, const Rectangle&) {
                            round.prepared.push_back(std::move(piece));
                          });
      }
    }
  }

  // Places the block of one line: by owner, the root's own last.
  int64_t place_updates(const std::vector<int32_t>& line, int32_t root,
                        const SharesByOwner& owned_by, int64_t at, bool own,
                        Computed& computed, PlacedRound& round,
                        PlacedMoves& moves) {
    if (own) {
      moves.scatter.received.assign(line.size(), 0);
      moves.scatter.received_at = at;
    }
    const auto place = [&](int32_t owner) {
      const auto list = owned_by.find(owner);
      if (list == owned_by.end()) return;
      for (const Share& share : list->second)
        for_each_own_part(share, [&](SlotPiece piece, const Rectangle& part) {
          add_piece(share, std::move(piece), part, at, round.applied);
          if (owner == rank_) add_update(share, part, at, computed);
          at += part.elements();
        });
    };
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == root) continue;
      const int64_t first = at;
      place(line[i]);
      if (own) moves.scatter.received[i] = at - first;
    }
    place(root);
    return at;
  }

  // Places the new weights of element-wise tensors that a line keeps.
  int64_t place_elements(const RoundMembers& members, int32_t line, bool own,
                         int64_t at, PlacedRound& round) const {
    const int64_t wide = plan_.options.wire == DType::kBf16 ? 2 : 1;
    for (int32_t e : members.elements) {
      const PlacedElements& it = plan_.elements[index(e)];
      const int64_t count = stored_elements(plan_, it.tensor, rank_);
      if (it.line != line || count == 0) continue;
      at = aligned_elements(at);
      (own ? round.shared : round.taken).push_back({it.tensor, count, at});
      at += count * wide;
    }
    return at;
  }

  void place_slots(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> first;
    for (const int64_t size : sizes) {
      first.push_back(out_.slot_elements);
      out_.slot_elements += size;
    }
    for (size_t r = 0; r < out_.rounds.size(); ++r) {
      const int64_t base = first[index(exchange_.moves[r].slot)];
      PlacedRound& round = out_.rounds[r];
      const auto shift = [base](std::vector<SlotRectangle>& list) {
        for (SlotRectangle& rectangle : list) rectangle.at += base;
      };
      for (auto* pieces : {&round.prepared, &round.applied})
        for (SlotPiece& p : *pieces) {
          if (p.at >= 0) p.at += base;
          shift(p.parts);
        }
      for (SlotMatrix& one : round.computed) {
        shift(one.rectangles);
        shift(one.updates);
      }
      for (SharedMatrix& team : round.teams) {
        shift(team.rectangles);
        shift(team.updates);
      }
      for (auto* list : {&round.shared, &round.taken})
        for (ElementTensor& elements : *list) elements.at += base;
      for (PlacedTables* tables :
           {&exchange_.moves[r].gather, &exchange_.moves[r].scatter}) {
        tables->sent_at += base;
        tables->received_at += base;
      }
      for (PlacedBlock& block : exchange_.moves[r].blocks) block.at += base;
    }
  }

  PlacedDraft& draft_;
  const PlacedPlan& plan_;
  const int32_t rank_;
  PlacedSchedule& out_;
  PlacedExchange exchange_;
};

}  // namespace

PlacedExchange add_placed_rounds(PlacedDraft& draft) {
  return PlacedRoundsMaker(draft).make();
}

}  // namespace canzona
