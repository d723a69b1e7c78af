#include "canzona/plan/placed/placed_schedule.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/equal_batches.h"
#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/rank_entries.h"

namespace canzona {
namespace {

using Kind = PlacedAction::Kind;

// The place of a matrix's stack index in a box's own stack; -1: not in it.
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

struct RoundMembers {
  int32_t in_class = 0;
  std::vector<int32_t> matrices;
  std::vector<int32_t> elements;  // places in plan.elements
};

// Every round of every class, in the order that all ranks share.
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

class PlacedScheduleMaker {
 public:
  PlacedScheduleMaker(const PlacedPlan& plan, int32_t rank, int64_t width)
      : plan_(plan),
        rank_(rank),
        width_(std::max<int64_t>(width, 1)),
        facts_(group_facts(plan.groups)) {
    out_.rank = rank;
    out_.states_of.resize(plan.tensors.size());
  }

  PlacedSchedule make() {
    find_groups();
    count_storage();
    find_kept_states();
    add_shard_states();
    add_elements();
    add_local();
    std::vector<RoundMembers> rounds = all_rounds(plan_);
    find_num_slots();
    place_of_round_.assign(rounds.size(), -1);
    std::vector<int64_t> sizes(index(num_slots_), 0);
    for (size_t g = 0; g < rounds.size(); ++g) add_round(g, rounds[g], sizes);
    place_slots(sizes);
    add_actions(rounds.size());
    return std::move(out_);
  }

 private:
  // ---- Who is who

  const PlacedTensor& tensor(int32_t t) const {
    return plan_.tensors[index(t)];
  }
  const PlacedMatrix& matrix(int32_t m) const {
    return plan_.matrices[index(m)];
  }
  const PlacedTensor& tensor_of(int32_t m) const {
    return tensor(matrix(m).tensor);
  }
  const RuleFacts& facts_of(int32_t t) const {
    return *facts_[index(tensor(t).group)];
  }
  const RuleFacts& facts_of_matrix(int32_t m) const {
    return facts_of(matrix(m).tensor);
  }
  bool is_element_wise(int32_t t) const {
    return !facts_of(t).needs_whole_matrix();
  }

  // The set of replicas that a rank of a class is in; null: it is in none.
  static const std::vector<int32_t>* set_of(const PlacedClass& c,
                                            int32_t rank) {
    for (const std::vector<int32_t>& set : c.replicas)
      if (std::binary_search(set.begin(), set.end(), rank)) return &set;
    return nullptr;
  }
  static int32_t line_of(const PlacedClass& c, int32_t rank) {
    const std::vector<int32_t>* set = set_of(c, rank);
    if (set == nullptr) return -1;
    return static_cast<int32_t>(std::ranges::lower_bound(*set, rank) -
                                set->begin());
  }

  int32_t add_group(const std::vector<int32_t>& ranks) {
    if (ranks.size() < 2) return -1;
    const auto [place, added] = group_number_.try_emplace(
        ranks, static_cast<int32_t>(out_.groups.size()));
    if (added) out_.groups.push_back(ranks);
    return place->second;
  }
  // The same list on every rank.
  void find_groups() {
    for (const PlacedClass& c : plan_.classes) {
      for (const auto& line : c.lines) add_group(line);
      for (const auto& set : c.replicas) add_group(set);
    }
  }

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

  // ---- States

  int32_t add_memory(int64_t elements) {
    out_.memories.push_back(elements);
    return static_cast<int32_t>(out_.memories.size()) - 1;
  }

  // True if this rank brings a matrix's states with the shard up to date.
  bool keeps_states_of(int32_t m) const {
    const PlacedMatrix& it = matrix(m);
    if (!plan_.options.share_states || facts_of_matrix(m).applies_to_states())
      return true;
    const PlacedClass& c =
        plan_.classes[index(plan_.class_of[index(it.tensor)])];
    return line_of(c, it.owner) == line_of(c, rank_);
  }
  bool keeps_states_of_elements(const PlacedElements& it) const {
    const PlacedClass& c =
        plan_.classes[index(plan_.class_of[index(it.tensor)])];
    return line_of(c, rank_) == it.line;
  }

  // By tensor, the parts of its storage whose states this rank keeps.
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
      if (!done[index(t)] && is_element_wise(t))
        kept_[index(t)] = {{0, stored_elements(plan_, t, rank_)}};
    for (int32_t m = 0; m < std::ssize(plan_.matrices); ++m) {
      if (!keeps_states_of(m)) continue;
      for (const PlacedPiece& piece : placed_pieces(plan_, m, rank_))
        add_kept(kept_[index(matrix(m).tensor)], {piece.at, piece.elements()});
    }
  }
  static void add_kept(std::vector<Extent>& kept, Extent next) {
    if (!kept.empty() && kept.back().end() == next.first)
      kept.back().count += next.count;
    else if (next.count > 0)
      kept.push_back(next);
  }

  // Of the rank's box; flat if it has several.
  std::vector<int64_t> stored_shape(int32_t t) const {
    const std::vector<Box>& boxes = tensor(t).stored[index(rank_)];
    if (boxes.size() == 1) return boxes[0].count;
    return {stored_elements(plan_, t, rank_)};
  }

  // A matrix's facts, or, of an element-wise rule, those of a row.
  std::vector<StateFact> state_facts(int32_t t) const {
    if (is_element_wise(t)) return facts_of(t).states({1, 1});
    const int32_t m = plan_.first_matrix[index(t)];
    if (m == plan_.first_matrix[index(t) + 1]) return {};
    return facts_of(t).tensor_states({matrix(m).rows, matrix(m).cols});
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
                               .memory = add_memory(elements),
                               .kept = kept_[index(t)]});
      }
    }
  }

  // ---- Batches

  int64_t most_in_batch(int64_t rows, int64_t cols) const {
    constexpr int64_t kMostElements = int64_t{1} << 28;
    const int64_t each = std::max<int64_t>(rows * cols, 1);
    return std::clamp<int64_t>(kMostElements / each, 1, width_);
  }

  std::vector<PlacedBatch> batches_of(std::vector<OwnedMatrix> owned) {
    using Likeness =
        std::tuple<int64_t, int64_t, int32_t, int32_t, ParameterDtype>;
    std::vector<Likeness> alike;
    for (const OwnedMatrix& one : owned) {
      const PlacedMatrix& it = matrix(one.matrix);
      alike.emplace_back(it.rows, it.cols, it.phase, tensor(it.tensor).group,
                         tensor(it.tensor).dtype);
    }
    std::vector<PlacedBatch> batches;
    for (const std::vector<size_t>& places :
         equal_batches(alike, [this](const Likeness& l) {
           return most_in_batch(std::get<0>(l), std::get<1>(l));
         })) {
      const auto& [rows, cols, phase, group, dtype] = alike[places[0]];
      PlacedBatch& batch = batches.emplace_back();
      batch.group = group;
      batch.dtype = dtype;
      batch.dims = {rows, cols};
      batch.phase = phase;
      for (size_t at : places) batch.members.push_back(std::move(owned[at]));
      add_owner_states(batch);
    }
    return batches;
  }

  void add_owner_states(PlacedBatch& batch) {
    const auto count = std::ssize(batch.members);
    for (const StateFact& fact :
         facts_[index(batch.group)]->tensor_states(batch.dims)) {
      if (fact.lives != Lives::kWithOwner) continue;
      batch.states.push_back(add_memory(count * fact.elements()));
      for (int64_t i = 0; i < count; ++i) {
        const int32_t m = batch.members[index(i)].matrix;
        out_.states.push_back({.name = fact.name,
                               .tensor = matrix(m).tensor,
                               .matrix = m,
                               .shape = fact.shape,
                               .initially = fact.initially,
                               .memory = batch.states.back(),
                               .at = i * fact.elements()});
      }
    }
  }

  void add_elements() {
    std::vector<bool> shared(plan_.tensors.size());
    for (const PlacedElements& it : plan_.elements)
      shared[index(it.tensor)] = true;
    for (int32_t t = 0; t < std::ssize(plan_.tensors); ++t) {
      const int64_t count = stored_elements(plan_, t, rank_);
      if (is_element_wise(t) && !shared[index(t)] && count > 0)
        out_.elements.push_back({t, count});
    }
  }

  void add_local() {
    std::vector<OwnedMatrix> owned;
    for (int32_t m = 0; m < std::ssize(plan_.matrices); ++m) {
      if (matrix(m).round >= 0 || matrix(m).owner != rank_) continue;
      OwnedMatrix& one = owned.emplace_back();
      one.matrix = m;
      one.pieces = placed_pieces(plan_, m, rank_);
    }
    out_.local = batches_of(std::move(owned));
  }

  // ---- Rounds

  // A rank of a line exchanges these, wherever its slot will be.
  struct Tables {
    std::vector<int64_t> sent, received;  // by rank of the line
    int64_t sent_at = 0, received_at = 0;
    bool is_empty = true;  // on every rank of the line
  };
  struct Block {
    int32_t root = 0;
    int64_t at = 0, count = 0;
  };
  struct Moves {
    int32_t line_group = -1, set_group = -1;
    Tables gather, scatter;
    std::vector<Block> blocks;  // by line
    int32_t slot = 0;
  };

  void find_num_slots() {
    num_slots_ = kExchangeSlots;
    for (const PlacedClass& c : plan_.classes)
      for (const auto& line : c.lines)
        if (c.lines.size() > 1 && line.size() > 1)
          num_slots_ = kExchangeSlots + 1;
  }

  void add_round(size_t g, const RoundMembers& members,
                 std::vector<int64_t>& sizes) {
    const PlacedClass& c = plan_.classes[index(members.in_class)];
    const std::vector<int32_t>* set = set_of(c, rank_);
    if (set == nullptr) return;
    const auto slot = static_cast<int32_t>(index(g) % index(num_slots_));
    PlacedRound round;
    round.number = static_cast<int32_t>(g);
    Moves moves;
    moves.slot = slot;
    sizes[index(slot)] =
        std::max(sizes[index(slot)], lay_out(c, *set, members, round, moves));
    place_of_round_[g] = static_cast<int32_t>(out_.rounds.size());
    out_.rounds.push_back(std::move(round));
    moves_.push_back(std::move(moves));
    tensors_in_.push_back(tensors_in(members));
  }

  std::vector<int32_t> tensors_in(const RoundMembers& members) const {
    std::set<int32_t> found;
    for (int32_t m : members.matrices) found.insert(matrix(m).tensor);
    for (int32_t e : members.elements)
      found.insert(plan_.elements[index(e)].tensor);
    return {found.begin(), found.end()};
  }

  // Places everything in a slot that begins at 0; returns its size.
  int64_t lay_out(const PlacedClass& c, const std::vector<int32_t>& set,
                  const RoundMembers& members, PlacedRound& round,
                  Moves& moves) {
    const int32_t own_line = line_of(c, rank_);
    const std::vector<int32_t>& line = c.lines[index(own_line)];
    moves.line_group = add_group(line);
    moves.set_group = add_group(set);
    std::map<int32_t, std::vector<int32_t>> owned_by;  // by owner
    for (int32_t m : members.matrices) owned_by[matrix(m).owner].push_back(m);
    std::map<int32_t, OwnedMatrix> owned;
    for (int32_t m : owned_by[rank_]) owned[m].matrix = m;
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
      if (line_of(c, o) == own_line)
        for (int32_t m : list)
          if (moves_at_all(m))
            moves.gather.is_empty = moves.scatter.is_empty = false;
    std::vector<OwnedMatrix> computed;
    for (int32_t m : owned_by[rank_]) computed.push_back(std::move(owned[m]));
    round.batches = batches_of(std::move(computed));
    return aligned_elements(end);
  }

  bool moves_at_all(int32_t m) const {
    int64_t at_owner = 0;
    for (const PlacedPiece& p : placed_pieces(plan_, m, matrix(m).owner))
      at_owner += p.elements();
    return at_owner < matrix(m).rows * matrix(m).cols;
  }

  // W, and X where it is not the same; returns the end of both.
  int64_t place_whole(const std::vector<int32_t>& line,
                      const std::vector<int32_t>& mine,
                      std::map<int32_t, OwnedMatrix>& owned, Moves& moves) {
    moves.gather.received.assign(line.size(), 0);
    moves.scatter.sent.assign(line.size(), 0);
    const bool in_place = std::ranges::all_of(mine, [this](int32_t m) {
      return facts_of_matrix(m).gather_fields() == 1;
    });
    int64_t at = 0;
    const auto place = [&](int32_t sender) {
      for (int32_t m : mine)
        for (const PlacedPiece& p : placed_pieces(plan_, m, sender)) {
          owned[m].fields.push_back({p, at, p.elements()});
          at += p.elements() * facts_of_matrix(m).gather_fields();
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
        for (const PlacedPiece& p : placed_pieces(plan_, m, line[i])) {
          owned[m].updates.push_back({p, at, 0});
          at += p.elements();
        }
      moves.scatter.sent[i] = at - first;
    }
    return in_place ? end_of_w : aligned_elements(at);
  }

  // S, and the rank's own pieces of its matrices, which are the last in W.
  int64_t place_sent(const std::vector<int32_t>& line,
                     const std::map<int32_t, std::vector<int32_t>>& owned_by,
                     int64_t first, PlacedRound& round, Moves& moves) {
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
    for (const PlacedPiece& p : placed_pieces(plan_, m, rank_)) {
      round.prepared.push_back({p, at});
      at += p.elements() * facts_of_matrix(m).gather_fields();
    }
    return at;
  }

  // Matrices that another line gathers: their states here go on.
  void prepare_states(const std::vector<int32_t>& line,
                      const std::map<int32_t, std::vector<int32_t>>& owned_by,
                      PlacedRound& round) const {
    for (int32_t o : line) {
      const auto list = owned_by.find(o);
      if (list == owned_by.end()) continue;
      for (int32_t m : list->second) {
        if (plan_.options.share_states ||
            facts_of_matrix(m).applies_to_states() ||
            out_.states_of[index(matrix(m).tensor)].empty())
          continue;
        for (const PlacedPiece& p : placed_pieces(plan_, m, rank_))
          round.prepared.push_back({p, -1});
      }
    }
  }

  // The block of one line: by owner, the root's own last.
  int64_t place_updates(const std::vector<int32_t>& line, int32_t root,
                        const std::map<int32_t, std::vector<int32_t>>& owned_by,
                        int64_t at, bool own,
                        std::map<int32_t, OwnedMatrix>& owned,
                        PlacedRound& round, Moves& moves) {
    if (own) {
      moves.scatter.received.assign(line.size(), 0);
      moves.scatter.received_at = at;
    }
    const auto place = [&](int32_t owner) {
      const auto list = owned_by.find(owner);
      if (list == owned_by.end()) return;
      for (int32_t m : list->second)
        for (const PlacedPiece& p : placed_pieces(plan_, m, rank_)) {
          round.applied.push_back({p, at});
          if (owner == rank_) owned[m].updates.push_back({p, at, 0});
          at += p.elements();
        }
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

  // New weights of element-wise tensors that a line keeps.
  int64_t place_elements(const RoundMembers& members, int32_t line, bool own,
                         int64_t at, PlacedRound& round) const {
    const int64_t wide = plan_.options.wire == WireDtype::kBf16 ? 2 : 1;
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

  // ---- Slots and actions

  void place_slots(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> first;
    for (const int64_t size : sizes) {
      first.push_back(out_.slot_elements);
      out_.slot_elements += size;
    }
    for (size_t r = 0; r < out_.rounds.size(); ++r) {
      const int64_t base = first[index(moves_[r].slot)];
      PlacedRound& round = out_.rounds[r];
      for (PreparedPiece& p : round.prepared)
        if (p.to >= 0) p.to += base;
      for (AppliedPiece& p : round.applied) p.from += base;
      for (PlacedBatch& batch : round.batches)
        for (OwnedMatrix& one : batch.members)
          for (auto* list : {&one.fields, &one.updates})
            for (SlotRectangle& rectangle : *list) rectangle.at += base;
      for (auto* list : {&round.shared, &round.taken})
        for (ElementTensor& elements : *list) elements.at += base;
      for (Tables* tables : {&moves_[r].gather, &moves_[r].scatter}) {
        tables->sent_at += base;
        tables->received_at += base;
      }
      for (Block& block : moves_[r].blocks) block.at += base;
    }
  }

  int32_t add(PlacedAction action) {
    out_.actions.push_back(std::move(action));
    return static_cast<int32_t>(out_.actions.size()) - 1;
  }
  void add_compute(Kind kind, int32_t place, std::string label,
                   std::vector<int32_t> tensors) {
    add({.kind = kind,
         .item = place,
         .label = std::move(label),
         .tensors = std::move(tensors)});
  }
  std::string label(std::string_view what, size_t place) const {
    return cat(what, " round ", out_.rounds[place].number);
  }

  void add_wait(int32_t& action) {
    if (action < 0) return;
    add({.kind = Kind::kWait,
         .item = action,
         .label = cat("wait for ", out_.actions[index(action)].label)});
    action = -1;
  }
  int32_t add_all_to_all(size_t place, const Tables& tables,
                         std::string_view what) {
    if (tables.is_empty) return -1;
    return add({.kind = Kind::kAllToAll,
                .label = label(what, place),
                .tensors = tensors_in_[place],
                .group = moves_[place].line_group,
                .send_at = tables.sent_at,
                .send = tables.sent,
                .receive_at = tables.received_at,
                .receive = tables.received});
  }

  // A round waits for these actions, given by their numbers.
  struct OnTheWay {
    int32_t gather = -1, scatter = -1;
    std::vector<int32_t> broadcasts;
    bool is_broadcast = false;
  };

  void broadcast(size_t place, OnTheWay& moving) {
    if (std::exchange(moving.is_broadcast, true)) return;
    const Moves& moves = moves_[place];
    if (moves.set_group < 0) return;
    add_wait(moving.scatter);
    for (const Block& block : moves.blocks)
      if (block.count > 0)
        moving.broadcasts.push_back(add(
            {.kind = Kind::kBroadcast,
             .label = label(cat("updates of rank ", block.root, " in"), place),
             .tensors = tensors_in_[place],
             .group = moves.set_group,
             .receive_at = block.at,
             .root = block.root,
             .count = block.count}));
  }

  void add_elements_and_local() {
    std::vector<int32_t> tensors;
    for (const ElementTensor& it : out_.elements) tensors.push_back(it.tensor);
    if (!tensors.empty())
      add_compute(Kind::kElements, -1, "elements", std::move(tensors));
    std::set<int32_t> found;
    for (const PlacedBatch& batch : out_.local)
      for (const OwnedMatrix& one : batch.members)
        found.insert(matrix(one.matrix).tensor);
    if (!found.empty())
      add_compute(Kind::kLocal, -1, "local matrices",
                  {found.begin(), found.end()});
  }

  // The stages of all ranks' rounds, of which this rank has its part.
  void add_actions(size_t num_rounds) {
    moving_.resize(out_.rounds.size());
    if (num_rounds == 0) add_elements_and_local();
    for (const ExchangeStage& stage :
         exchange_order(static_cast<int32_t>(num_rounds), num_slots_)) {
      add_stage(stage);
      if (stage.round == 0 && stage.purpose == Purpose::kGatherMatrices)
        add_elements_and_local();
    }
  }

  void add_stage(const ExchangeStage& stage) {
    const bool scatters = stage.purpose == Purpose::kScatterMatrices;
    // A round's updates go on to replicas one transform after they came.
    if (scatters && stage.round > 0 && here(stage.round - 1))
      broadcast(place(stage.round - 1), moving_[place(stage.round - 1)]);
    if (!here(stage.round)) return;
    const size_t p = place(stage.round);
    OnTheWay& moving = moving_[p];
    if (stage.kind == EntryKind::kPrepare)
      return add_compute(Kind::kPrepare, static_cast<int32_t>(p),
                         label("prepare", p), tensors_in_[p]);
    if (stage.purpose == Purpose::kGatherMatrices) {
      moving.gather = add_all_to_all(p, moves_[p].gather, "gather");
      return;
    }
    if (stage.kind == EntryKind::kTransform) {
      add_wait(moving.gather);
      return add_compute(Kind::kTransform, static_cast<int32_t>(p),
                         label("transform", p), tensors_in_[p]);
    }
    if (scatters) {
      moving.scatter = add_all_to_all(p, moves_[p].scatter, "scatter");
      if (line_is_one(p)) broadcast(p, moving);
      return;
    }
    broadcast(p, moving);
    add_wait(moving.scatter);
    for (int32_t& action : moving.broadcasts) add_wait(action);
    add_compute(Kind::kApply, static_cast<int32_t>(p), label("apply", p),
                tensors_in_[p]);
  }

  bool here(int32_t round) const { return place_of_round_[index(round)] >= 0; }
  size_t place(int32_t round) const {
    return index(place_of_round_[index(round)]);
  }
  // Whether a broadcast comes at once follows from the class alone.
  bool line_is_one(size_t p) const { return moves_[p].line_group < 0; }

  const PlacedPlan& plan_;
  const int32_t rank_;
  const int64_t width_;
  std::vector<std::unique_ptr<RuleFacts>> facts_;  // by group
  std::map<std::vector<int32_t>, int32_t> group_number_;
  std::vector<std::vector<Extent>> kept_;  // by tensor
  int32_t num_slots_ = 0;
  std::vector<int32_t> place_of_round_;  // in out_.rounds; -1: not this rank's
  std::vector<Moves> moves_;             // as out_.rounds
  std::vector<std::vector<int32_t>> tensors_in_;
  std::vector<OnTheWay> moving_;
  PlacedSchedule out_;
};

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
    case Kind::kAllToAll:
      return "all_to_all";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kWait:
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
  return PlacedScheduleMaker(plan, rank, width).make();
}

}  // namespace canzona
