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
      facts_(group_facts(the_plan.groups)) {
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
    const std::vector<int32_t>& kept) {
  std::vector<ComputedMatrix> computed;
  for (const int32_t k : kept) {
    const PlacedMatrix& it = matrix(out.kept[index(k)].matrix);
    const PlacedTensor& of = tensor(it.tensor);
    computed.push_back({k, -1, it.rows, it.cols, it.phase, of.group,
                        static_cast<int32_t>(of.dtype)});
  }
  std::vector<UpdateBatch> batches = canzona::batches_of(computed, width_);
  for (UpdateBatch& batch : batches) add_owner_states(batch);
  return batches;
}

void PlacedDraft::add_owner_states(UpdateBatch& batch) {
  const auto count = std::ssize(batch.members);
  for (StateFact& fact : facts_[index(batch.rule)]->tensor_states(batch.dims)) {
    if (fact.lives != Lives::kWithOwner) continue;
    const int32_t memory = add_memory(count * fact.elements());
    for (int64_t i = 0; i < count; ++i) {
      const int32_t m = out.kept[index(batch.members[index(i)])].matrix;
      out.states.push_back({.name = fact.name,
                            .tensor = matrix(m).tensor,
                            .matrix = m,
                            .shape = fact.shape,
                            .initially = fact.initially,
                            .memory = memory,
                            .at = i * fact.elements()});
    }
    batch.owned.push_back(
        {std::make_shared<const StateFact>(std::move(fact)), 0, memory});
  }
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
  using Computed = std::map<int32_t, SlotMatrix>;  // by number in the plan

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
    std::map<int32_t, std::vector<int32_t>> owned_by;  // by owner
    for (int32_t m : members.matrices)
      owned_by[draft_.matrix(m).owner].push_back(m);
    Computed owned;
    for (int32_t m : owned_by[rank_]) owned[m] = computed_matrix(m);
    const int64_t end_of_x = place_whole(line, owned_by[rank_], owned, moves);
    const int64_t end_of_s = place_sent(line, owned_by, end_of_x, round, moves);
    int64_t end = end_of_s;
    moves.blocks.resize(set.size());
    const auto place_block = [&](int32_t l, int64_t from) {
      const bool own = l == own_line;
      const std::vector<int32_t>& owners = c.lines[index(l)];
      int64_t at = place_updates(owners, set[index(l)], owned_by, from, own,
                                 owned, round, moves);
      at = place_elements(members, l, own, at, round);
      moves.blocks[index(l)] = {set[index(l)], from, at - from};
      end = std::max(end, at);
      if (!own) prepare_states(owners, owned_by, round);
    };
    place_block(own_line, end_of_x);
    for (int32_t l = 0; l < std::ssize(set); ++l)
      if (l != own_line) place_block(l, aligned_elements(end));
    for (const auto& [o, list] : owned_by)
      if (PlacedDraft::line_of(c, o) == own_line)
        for (int32_t m : list)
          if (moves_at_all(m))
            moves.gather.is_empty = moves.scatter.is_empty = false;
    std::vector<int32_t> kept;
    for (auto& [m, one] : owned) {
      kept.push_back(one.kept);
      round.computed.push_back(std::move(one));
    }
    round.batches = draft_.batches_of(kept);
    return aligned_elements(end);
  }

  SlotMatrix computed_matrix(int32_t m) const {
    SlotMatrix one;
    one.kept = draft_.kept_of(m);
    one.own = {0, draft_.matrix(m).rows, 0, draft_.matrix(m).cols};
    return one;
  }

  // Calls place(SlotPiece, elements) for what this rank stores of a matrix.
  template <class Place>
  void for_each_piece(int32_t m, const Place& place) const {
    const int32_t k = draft_.kept_of(m);
    if (k == std::ssize(out_.kept) || out_.kept[index(k)].matrix != m) return;
    const std::vector<Piece>& pieces = out_.kept[index(k)].pieces;
    for (size_t p = 0; p < pieces.size(); ++p)
      place(SlotPiece{
          {pieces[p], -1, pieces[p].elements()}, k, static_cast<int32_t>(p)});
  }

  bool moves_at_all(int32_t m) const {
    int64_t at_owner = 0;
    for (const Piece& p : placed_pieces(plan_, m, draft_.matrix(m).owner))
      at_owner += p.elements();
    return at_owner < draft_.matrix(m).rows * draft_.matrix(m).cols;
  }

  // Places W, and X if it is separate; returns the end of both.
  int64_t place_whole(const std::vector<int32_t>& line,
                      const std::vector<int32_t>& mine, Computed& owned,
                      PlacedMoves& moves) {
    moves.gather.received.assign(line.size(), 0);
    moves.scatter.sent.assign(line.size(), 0);
    const bool in_place = std::ranges::all_of(mine, [this](int32_t m) {
      return draft_.facts_of_matrix(m).gather_fields() == 1;
    });
    int64_t at = 0;
    const auto place = [&](int32_t sender) {
      for (int32_t m : mine)
        for (const Piece& p : placed_pieces(plan_, m, sender)) {
          owned[m].rectangles.push_back({p, at, p.elements()});
          at += p.elements() * draft_.facts_of_matrix(m).gather_fields();
        }
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
      for (int32_t m : mine)
        for (const Piece& p : placed_pieces(plan_, m, line[i])) {
          owned[m].updates.push_back({p, at, 0});
          at += p.elements();
        }
      moves.scatter.sent[i] = at - first;
    }
    return in_place ? end_of_w : aligned_elements(at);
  }

  // Places S, and the rank's own pieces of its matrices, which are last in W.
  int64_t place_sent(const std::vector<int32_t>& line,
                     const std::map<int32_t, std::vector<int32_t>>& owned_by,
                     int64_t first, PlacedRound& round, PlacedMoves& moves) {
    moves.gather.sent.assign(line.size(), 0);
    moves.gather.sent_at = first;
    int64_t at = first;
    for (size_t i = 0; i < line.size(); ++i) {
      const auto list = owned_by.find(line[i]);
      if (list == owned_by.end() || line[i] == rank_) continue;
      const int64_t begin = at;
      for (int32_t m : list->second) at = prepare(m, at, round);
      moves.gather.sent[i] = at - begin;
    }
    int64_t own = 0;
    for (const int64_t count : moves.gather.received) own += count;
    if (const auto mine = owned_by.find(rank_); mine != owned_by.end())
      for (int32_t m : mine->second) own = prepare(m, own, round);
    return at;
  }
  int64_t prepare(int32_t m, int64_t at, PlacedRound& round) const {
    for_each_piece(m, [&](SlotPiece piece) {
      piece.at = at;
      at += piece.elements() * draft_.facts_of_matrix(m).gather_fields();
      round.prepared.push_back(std::move(piece));
    });
    return at;
  }

  // Advances the states that this rank keeps of matrices gathered by another
  // line.
  void prepare_states(const std::vector<int32_t>& line,
                      const std::map<int32_t, std::vector<int32_t>>& owned_by,
                      PlacedRound& round) const {
    for (int32_t o : line) {
      const auto list = owned_by.find(o);
      if (list == owned_by.end()) continue;
      for (int32_t m : list->second) {
        if (plan_.options.share_states ||
            draft_.facts_of_matrix(m).applies_to_states() ||
            out_.states_of[index(draft_.matrix(m).tensor)].empty())
          continue;
        for_each_piece(m, [&](SlotPiece piece) {
          round.prepared.push_back(std::move(piece));
        });
      }
    }
  }

  // Places the block of one line: by owner, the root's own last.
  int64_t place_updates(const std::vector<int32_t>& line, int32_t root,
                        const std::map<int32_t, std::vector<int32_t>>& owned_by,
                        int64_t at, bool own, Computed& owned,
                        PlacedRound& round, PlacedMoves& moves) {
    if (own) {
      moves.scatter.received.assign(line.size(), 0);
      moves.scatter.received_at = at;
    }
    const auto place = [&](int32_t owner) {
      const auto list = owned_by.find(owner);
      if (list == owned_by.end()) return;
      for (int32_t m : list->second)
        for_each_piece(m, [&](SlotPiece piece) {
          piece.at = at;
          if (owner == rank_) owned[m].updates.push_back({piece, at, 0});
          at += piece.elements();
          round.applied.push_back(std::move(piece));
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
      for (SlotPiece& p : round.prepared)
        if (p.at >= 0) p.at += base;
      for (SlotPiece& p : round.applied) p.at += base;
      for (SlotMatrix& one : round.computed)
        for (auto* list : {&one.rectangles, &one.updates})
          for (SlotRectangle& rectangle : *list) rectangle.at += base;
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
