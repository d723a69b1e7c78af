#include "canzona/plan/storage/storage_rounds.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "canzona/plan/schedule/entries.h"
#include "canzona/plan/schedule/round_maker.h"

namespace canzona::plan {

ScheduleDraft::ScheduleDraft(const StoragePlan& the_plan, int32_t the_rank,
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

int32_t ScheduleDraft::add_group(const std::vector<int32_t>& ranks) {
  if (ranks.size() < 2) return -1;
  const auto [place, added] =
      group_number_.try_emplace(ranks, static_cast<int32_t>(out.groups.size()));
  if (added) out.groups.push_back(ranks);
  return place->second;
}
// Makes the same list on every rank.
void ScheduleDraft::find_groups() {
  for (const ReplicaClass& c : plan.classes) {
    for (const auto& line : c.lines) add_group(line);
    for (const auto& set : c.replicas) add_group(set);
  }
}

int32_t ScheduleDraft::add_memory(int64_t elements) {
  out.memories.push_back(elements);
  return static_cast<int32_t>(out.memories.size()) - 1;
}

void ScheduleDraft::find_kept() {
  for (int32_t m = 0; m < std::ssize(plan.matrices); ++m) {
    std::vector<Piece> pieces = storage_pieces(plan, m, rank);
    if (pieces.empty() && matrix(m).owner != rank) continue;
    KeptMatrix& kept = out.kept.emplace_back();
    kept.matrix = m;
    kept.dims = {matrix(m).rows, matrix(m).cols};
    kept.pieces = std::move(pieces);
  }
}

int32_t ScheduleDraft::kept_of(int32_t m) const {
  return static_cast<int32_t>(
      std::ranges::lower_bound(out.kept, m, {}, &KeptMatrix::matrix) -
      out.kept.begin());
}

std::vector<UpdateBatch> ScheduleDraft::batches_of(
    const std::vector<SlotMatrix>& computed) {
  std::vector<ComputedMatrix> found;
  for (const SlotMatrix& one : computed) {
    const OwnedMatrix& it = matrix(out.kept[index(one.kept)].matrix);
    const CutTensor& of = tensor(it.tensor);
    found.push_back({one.kept, one.block, one.own.num_rows, one.own.num_cols,
                     it.phase, of.group, static_cast<int32_t>(of.dtype)});
  }
  std::vector<UpdateBatch> batches = canzona::batches_of(found, width_);
  for (UpdateBatch& batch : batches) add_owner_states(batch);
  return batches;
}

int64_t ScheduleDraft::work_of(const UpdateBatch& batch) {
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

ScheduledState ScheduleDraft::owned_state(const StateFact& fact, int32_t m,
                                          int32_t memory, int64_t at) const {
  return {.name = fact.name,
          .tensor = matrix(m).tensor,
          .matrix = m,
          .shape = fact.shape,
          .initially = fact.initially,
          .memory = memory,
          .at = at};
}

void ScheduleDraft::add_owner_states(UpdateBatch& batch) {
  const auto count = std::ssize(batch.members);
  const RuleFacts& rule = *facts_[index(batch.rule)];
  for (int64_t i = 0; i < count; ++i) {
    const OwnedMatrix& it =
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
      ScheduledState& state = out.states.emplace_back(
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

SharedStates ScheduleDraft::states_of(const SharedMatrix& team) {
  SharedStates states{team.kept, {}, {}, {}};
  if (!team.is_member()) return states;
  const OwnedMatrix& it = matrix(team.matrix);
  for (TeamState& state :
       facts_of_matrix(team.matrix)
           .team_states({it.rows, it.cols}, team.size(), team.member)) {
    const int32_t memory = add_memory(state.own.elements());
    ScheduledState& storage =
        out.states.emplace_back(owned_state(state.own, team.matrix, memory, 0));
    storage.name = state.in_matrix.name;
    storage.in_matrix = state.in_matrix;
    storage.is_given = state.given;
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
std::vector<RoundMembers> all_rounds(const StoragePlan& plan) {
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
    const OwnedMatrix& matrix = plan.matrices[m];
    if (matrix.round >= 0)
      of(matrix.tensor, matrix.round)
          .matrices.push_back(static_cast<int32_t>(m));
  }
  for (size_t e = 0; e < plan.elements.size(); ++e)
    of(plan.elements[e].tensor, plan.elements[e].round)
        .elements.push_back(static_cast<int32_t>(e));
  return rounds;
}

class LineRounds : public RoundMaker {
 public:
  explicit LineRounds(ScheduleDraft& draft)
      : RoundMaker(draft.rank, Fields::kByPiece),
        draft_(draft),
        plan_(draft.plan),
        out_(draft.out) {}

  RankRounds make() {
    const std::vector<RoundMembers> rounds = all_rounds(plan_);
    find_num_slots();
    exchange_.position_of_round.assign(rounds.size(), -1);
    std::vector<int64_t> sizes(index(exchange_.num_slots), 0);
    for (size_t g = 0; g < rounds.size(); ++g) add_round(g, rounds[g], sizes);
    place_slots(sizes);
    return std::move(exchange_);
  }

 private:
  // Elements to or from the ranks of the line, one rank after another.
  struct Side {
    int64_t at = 0;               // element of the slot
    std::vector<int64_t> counts;  // elements, by rank of the line
  };

  std::vector<Rectangle> pieces(int32_t matrix, int32_t rank) const override {
    const std::vector<Piece> found = storage_pieces(plan_, matrix, rank);
    return {found.begin(), found.end()};
  }
  int64_t num_fields(int32_t matrix) const override {
    return draft_.facts_of_matrix(matrix).gather_fields();
  }
  int32_t kept_of(int32_t matrix) const override {
    return draft_.kept_of(matrix);
  }

  void find_num_slots() {
    exchange_.num_slots = kExchangeSlots;
    for (const ReplicaClass& c : plan_.classes)
      for (const auto& line : c.lines)
        if (c.lines.size() > 1 && line.size() > 1)
          exchange_.num_slots = kExchangeSlots + 1;
  }

  void add_round(size_t g, const RoundMembers& members,
                 std::vector<int64_t>& sizes) {
    const ReplicaClass& c = plan_.classes[index(members.in_class)];
    const std::vector<int32_t>* set = ScheduleDraft::set_of(c, self_);
    if (set == nullptr) return;
    begin();
    round_.number = static_cast<int32_t>(g);
    RoundMoves moves;
    moves.tensors = tensors_in(members);
    lay_out(c, *set, members, moves);
    int64_t& size = sizes[slot_of(round_)];
    size = std::max(size, round_.num_elements);
    exchange_.position_of_round[g] = static_cast<int32_t>(out_.rounds.size());
    out_.rounds.push_back(std::move(round_));
    exchange_.moves.push_back(std::move(moves));
  }

  std::vector<int32_t> tensors_in(const RoundMembers& members) const {
    std::set<int32_t> found;
    for (int32_t m : members.matrices) found.insert(draft_.matrix(m).tensor);
    for (int32_t e : members.elements)
      found.insert(plan_.elements[index(e)].tensor);
    return {found.begin(), found.end()};
  }

  size_t slot_of(const Round& round) const {
    return index(round.number % exchange_.num_slots);
  }

  void lay_out(const ReplicaClass& c, const std::vector<int32_t>& set,
               const RoundMembers& members, RoundMoves& moves) {
    const int32_t own_line = ScheduleDraft::line_of(c, self_);
    const std::vector<int32_t>& line = c.lines[index(own_line)];
    moves.line_group = draft_.add_group(line);
    moves.set_group = draft_.add_group(set);
    moves.line_size = static_cast<int32_t>(line.size());
    const bool moves_any = add_matrices(members, line);
    begin_computed();
    const int64_t end_of_x = place_wholes(line);
    int64_t end = place_shards(line, end_of_x);
    moves.blocks.resize(set.size());
    const auto place_block = [&](int32_t l, int64_t from) {
      const bool own = l == own_line;
      const std::vector<int32_t>& owners = c.lines[index(l)];
      int64_t at = place_updates(owners, set[index(l)], from, own);
      at = place_elements(members, l, own, at);
      moves.blocks[index(l)] = {set[index(l)], from, at - from};
      end = std::max(end, at);
      if (!own) prepare_states(owners);
    };
    place_block(own_line, end_of_x);
    for (int32_t l = 0; l < std::ssize(set); ++l)
      if (l != own_line) place_block(l, aligned_elements(end));
    round_.gather[0] = table(to_owners_, from_holders_, moves_any);
    round_.scatter[0] = table(to_holders_, from_owners_, moves_any);
    round_.num_elements = aligned_elements(end);
    finish_computed();
    add_updates();
  }

  // Every rank of the line knows the teams of a round. Returns false if nothing
  // moves in it.
  bool add_matrices(const RoundMembers& members,
                    const std::vector<int32_t>& line) {
    bool moves_any = false;
    for (const int32_t m : members.matrices) {
      const auto shares = draft_.shares().shares(index(m));
      add_matrix(m, shares);
      if (!std::ranges::binary_search(line, draft_.matrix(m).owner)) continue;
      if (draft_.shares().is_team(index(m))) {
        SharedMatrix team = draft_.shares().team_in(index(m), line, self_);
        team.kept = kept_of(m);
        add_team(std::move(team));
      }
      moves_any = moves_any ||
                  std::ranges::any_of(shares, [&](const MatrixShare& share) {
                    return elements_within(plan_, m, share.t,
                                           share.rectangles) < share.elements();
                  });
    }
    return moves_any;
  }

  // Adds batches and states of what this rank computes, spread over the
  // segments of teams.
  void add_updates() {
    std::vector<SharedStates>& states = out_.updates.shared.emplace_back();
    std::vector<UpdateBatch> batches = draft_.batches_of(round_.computed);
    for (const SharedMatrix& team : round_.shared)
      states.push_back(draft_.states_of(team));
    std::vector<int64_t> work;
    for (const UpdateBatch& batch : batches)
      work.push_back(draft_.work_of(batch));
    const std::vector<int32_t> of =
        spread_over_segments(work, round_.num_segments());
    for (size_t b = 0; b < of.size(); ++b) batches[b].segment = of[b];
    out_.updates.batches.push_back(std::move(batches));
  }

  // Calls place(i, element), which returns the end of a block, for the i-th
  // rank of the line but `last`, and counts what it storage.
  template <class Place>
  static int64_t place_side(const std::vector<int32_t>& line, int32_t last,
                            int64_t at, Side& side, const Place& place) {
    side = {at, std::vector<int64_t>(line.size(), 0)};
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == last) continue;
      const int64_t first = at;
      at = place(line[i], at);
      side.counts[i] = at - first;
    }
    return at;
  }

  // Places W, and X if it is separate; returns the end of both.
  int64_t place_wholes(const std::vector<int32_t>& line) {
    const Shares& mine = shares_of(self_);
    int64_t at = place_side(line, self_, 0, from_holders_,
                            [&](int32_t holder, int64_t first) {
                              return place_whole(mine, holder, false, first);
                            });
    const int64_t end = aligned_elements(place_whole(mine, self_, true, at));
    const bool in_place = std::ranges::all_of(mine, [this](const Share& share) {
      return num_fields(share.matrix) == 1;
    });
    at = place_side(
        line, self_, in_place ? 0 : end, to_holders_,
        [&](int32_t holder, int64_t first) {
          return place(
              mine, holder, true, first,
              [this](const Share& share, const Rectangle& part, int32_t,
                     int64_t to, int64_t) { add_update(share, part, to); });
        });
    return in_place ? end : aligned_elements(at);
  }

  int64_t place_shards(const std::vector<int32_t>& line, int64_t first) {
    return place_side(line, self_, first, to_owners_,
                      [&](int32_t owner, int64_t at) {
                        return place_sent(shares_of(owner), at);
                      });
  }

  // Advances the states that this rank keeps of matrices gathered by another
  // line.
  void prepare_states(const std::vector<int32_t>& line) {
    for (const int32_t owner : line)
      for (const Share& share : shares_of(owner)) {
        const int32_t m = share.matrix;
        if (share.number > 0 || plan_.options.share_states ||
            draft_.facts_of_matrix(m).applies_to_states() ||
            out_.states_of[index(draft_.matrix(m).tensor)].empty())
          continue;
        const std::vector<Rectangle> own = pieces(m, self_);
        for (size_t p = 0; p < own.size(); ++p)
          if (own[p].elements() > 0)
            round_.prepared.push_back(
                {{own[p], -1, 0}, kept_of(m), static_cast<int32_t>(p)});
      }
  }

  // Places the block of one line: by owner, the root's own last.
  int64_t place_updates(const std::vector<int32_t>& line, int32_t root,
                        int64_t first, bool own) {
    const auto place_of = [&](int32_t owner, int64_t from) {
      return place(shares_of(owner), self_, true, from,
                   [&](const Share& share, const Rectangle& part, int32_t piece,
                       int64_t at, int64_t) {
                     add_piece(share, part, piece, at, 0, round_.applied);
                     if (owner == self_) add_update(share, part, at);
                   });
    };
    Side others;
    const int64_t end =
        place_side(line, root, first, own ? from_owners_ : others, place_of);
    return place_of(root, end);
  }

  // Places the new weights of element-wise tensors that a line keeps.
  int64_t place_elements(const RoundMembers& members, int32_t line, bool own,
                         int64_t at) {
    const int64_t wide = plan_.options.wire == DType::kBf16 ? 2 : 1;
    for (int32_t e : members.elements) {
      const SharedElements& it = plan_.elements[index(e)];
      const int64_t count = stored_elements(plan_, it.tensor, self_);
      if (it.line != line || count == 0) continue;
      at = aligned_elements(at);
      (own ? round_.given : round_.taken).push_back({it.tensor, count, at});
      at += count * wide;
    }
    return at;
  }

  ExchangeTable table(const Side& send, const Side& receive,
                      bool moves_any) const {
    ExchangeTable out;
    out.empty = !moves_any;
    const auto set = [this](const Side& side, Extent& area,
                            std::vector<int64_t>& bytes,
                            std::vector<int64_t>& offsets) {
      const int64_t wire = size_of(plan_.options.wire);
      area.first = side.at * wire;
      for (const int64_t count : side.counts) {
        offsets.push_back(area.count);
        bytes.push_back(count * wire);
        area.count += count * wire;
      }
    };
    set(send, out.source, out.send_bytes, out.send_offsets);
    set(receive, out.target, out.receive_bytes, out.receive_offsets);
    return out;
  }

  void place_slots(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> first;
    for (const int64_t size : sizes) {
      first.push_back(out_.slot_elements);
      out_.slot_elements += size;
    }
    for (Round& round : out_.rounds) round.slot_at = first[slot_of(round)];
  }

  ScheduleDraft& draft_;
  const StoragePlan& plan_;
  RankSchedule& out_;
  RankRounds exchange_;
  // These belong to the round, within the line.
  Side to_owners_, from_holders_, to_holders_, from_owners_;
};

}  // namespace

RankRounds add_storage_rounds(ScheduleDraft& draft) {
  return LineRounds(draft).make();
}

}  // namespace canzona::plan
