#include "canzona/plan/storage/storage_schedule.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/storage/storage_rounds.h"
#include "canzona/plan/schedule/step_maker.h"

namespace canzona::plan {
namespace {

// Adds what a rank does in every step regardless of rounds: the storage that it
// counts, states with the shard, element-wise tensors and matrices whose pieces
// never move.
class StatesMaker {
 public:
  explicit StatesMaker(ScheduleDraft& draft)
      : draft_(draft), plan_(draft.plan), rank_(draft.rank), out_(draft.out) {}

  // Returns the batches of matrices whose pieces never move.
  std::vector<UpdateBatch> make() {
    count_storage();
    find_kept_states();
    add_shard_states();
    add_elements();
    return local_batches();
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
    const OwnedMatrix& it = draft_.matrix(m);
    if (!plan_.options.share_states ||
        draft_.facts_of_matrix(m).applies_to_states())
      return true;
    const ReplicaClass& c =
        plan_.classes[index(plan_.class_of[index(it.tensor)])];
    return ScheduleDraft::line_of(c, it.owner) ==
           ScheduleDraft::line_of(c, rank_);
  }
  bool keeps_states_of_elements(const SharedElements& it) const {
    const ReplicaClass& c =
        plan_.classes[index(plan_.class_of[index(it.tensor)])];
    return ScheduleDraft::line_of(c, rank_) == it.line;
  }

  // Finds, by tensor, the extents of storage whose states this rank keeps.
  void find_kept_states() {
    kept_.resize(plan_.tensors.size());
    std::vector<bool> done(plan_.tensors.size());
    for (const SharedElements& it : plan_.elements) {
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
    for (const SharedElements& it : plan_.elements)
      shared[index(it.tensor)] = true;
    for (int32_t t = 0; t < std::ssize(plan_.tensors); ++t) {
      const int64_t count = stored_elements(plan_, t, rank_);
      if (draft_.is_element_wise(t) && !shared[index(t)] && count > 0)
        out_.elements.push_back({t, count});
    }
  }

  std::vector<UpdateBatch> local_batches() const {
    std::vector<SlotMatrix> owned;
    for (int32_t k = 0; k < std::ssize(out_.kept); ++k) {
      const OwnedMatrix& it = draft_.matrix(out_.kept[index(k)].matrix);
      if (it.round >= 0 || it.owner != rank_) continue;
      SlotMatrix& whole = owned.emplace_back();
      whole.kept = k;
      whole.own = {0, it.rows, 0, it.cols};
    }
    return draft_.batches_of(owned);
  }

  ScheduleDraft& draft_;
  const StoragePlan& plan_;
  const int32_t rank_;
  RankSchedule& out_;
  std::vector<std::vector<Extent>> kept_;  // by tensor
};

// The step of a rank on given storage.
class LineStep : public StepMaker {
 public:
  LineStep(const ScheduleDraft& draft, const RankRounds& exchange)
      : StepMaker({.num_slots = exchange.num_slots,
                   .is_ordered = false,
                   .lists_idle = false}),
        draft_(draft),
        out_(draft.out),
        exchange_(exchange) {}

  std::vector<ScheduleEntry> run() {
    return with_waits(make(out_.rounds, exchange_.position_of_round));
  }

 private:
  const RoundMoves& moves(int32_t round) const {
    return exchange_.moves[index(round)];
  }
  static ScheduleEntry named(EntryKind kind, std::string label,
                             std::vector<int32_t> tensors) {
    ScheduleEntry entry;
    entry.kind = kind;
    entry.label = std::move(label);
    entry.tensors = std::move(tensors);
    return entry;
  }
  ScheduleEntry of_round(EntryKind kind, std::string_view what,
                         int32_t round) const {
    ScheduleEntry entry =
        named(kind, cat(what, " round ", out_.rounds[index(round)].number),
              moves(round).tensors);
    entry.round = round;
    return entry;
  }

  void add_unmoved() override {
    std::vector<int32_t> tensors;
    for (const ElementTensor& it : out_.elements) tensors.push_back(it.tensor);
    if (!tensors.empty())
      add(named(EntryKind::kUpdateElements, "elements", std::move(tensors)));
    std::set<int32_t> found;
    for (const UpdateBatch& batch : out_.local())
      for (const int32_t k : batch.members)
        found.insert(draft_.matrix(out_.kept[index(k)].matrix).tensor);
    if (!found.empty())
      add(named(EntryKind::kUpdateMatrices, "local matrices",
                {found.begin(), found.end()}));
  }

  ScheduleEntry compute(EntryKind kind, int32_t round, int32_t) override {
    return of_round(kind, word_of(kind), round);
  }

  ScheduleEntry exchange(Purpose purpose, int32_t round,
                         const ExchangeTable& table) override {
    ScheduleEntry entry = of_round(
        EntryKind::kAllToAll,
        purpose == Purpose::kGatherMatrices ? "gather" : "scatter", round);
    entry.purpose = purpose;
    entry.ranks_of = moves(round).line_group;
    const std::vector<int32_t>& ranks = out_.groups[index(entry.ranks_of)];
    entry.bytes = exchanged_bytes(
        table, draft_.rank, [&](size_t i) { return ranks[i]; },
        [this](int32_t rank) { return node_of(rank); });
    entry.exchange = table;
    return entry;
  }

  void name_team(const SharedMatrix& of, ScheduleEntry& entry) override {
    const std::string name =
        matrix_name(draft_.tensor_of(of.matrix), draft_.matrix(of.matrix));
    entry.label =
        cat(entry.is_compute() ? word_of(entry.kind) : "exchange", " ", name);
    entry.tensors = {draft_.matrix(of.matrix).tensor};
  }

  std::vector<ScheduleEntry> broadcasts(int32_t round) override {
    std::vector<ScheduleEntry> out;
    if (moves(round).set_group < 0) return out;
    for (const BroadcastBlock& block : moves(round).blocks) {
      if (block.count == 0) continue;
      out.push_back(of_round(EntryKind::kBroadcast,
                             cat("updates of rank ", block.root, " in"),
                             round));
      out.back().ranks_of = moves(round).set_group;
      out.back().root = block.root;
      out.back().all = {block.at, block.count};
      out.back().bytes = broadcast_bytes(out.back());
    }
    return out;
  }

  WireBytes broadcast_bytes(const ScheduleEntry& entry) const {
    WireBytes bytes;
    const int64_t each = entry.all.count * size_of(draft_.plan.options.wire);
    for (const int32_t rank : out_.groups[index(entry.ranks_of)]) {
      const bool near = node_of(rank) == node_of(entry.root);
      if (entry.root == draft_.rank && rank != entry.root)
        (near ? bytes.sent_intra : bytes.sent_inter) += each;
      else if (rank == draft_.rank && rank != entry.root)
        (near ? bytes.received_intra : bytes.received_inter) += each;
    }
    return bytes;
  }

  int32_t node_of(int32_t rank) const {
    return rank / draft_.plan.options.ranks_per_node;
  }

  // Follows from the class alone, as does whether a broadcast is issued at
  // once.
  bool is_scattered_first(int32_t round) override {
    return moves(round).line_group >= 0;
  }

  bool works_alone(int32_t round, int32_t segment) override {
    const Round& of = out_.rounds[index(round)];
    return of.shared.empty() || (segment == 0 && !of.given.empty()) ||
           std::ranges::any_of(out_.updates.batches[index(round)],
                               [&](const UpdateBatch& batch) {
                                 return batch.segment == segment;
                               });
  }

  int32_t num_planes(int32_t round) const override {
    return moves(round).line_size;
  }

  // Puts a wait before the first entry that needs a collective, and waits for
  // all others at the end.
  static std::vector<ScheduleEntry> with_waits(
      std::vector<ScheduleEntry> entries) {
    std::vector<ScheduleEntry> out;
    std::vector<int32_t> place(entries.size(), -1);  // in `out`
    const auto wait = [&](int32_t before) {
      const int32_t at = std::exchange(place[index(before)], -1);
      if (at < 0) return;
      out.push_back(
          named(EntryKind::kWait, cat("wait for ", out[index(at)].label), {}));
      out.back().after = {at};
    };
    for (size_t e = 0; e < entries.size(); ++e) {
      for (const int32_t before : std::exchange(entries[e].after, {}))
        wait(before);
      if (!entries[e].is_compute()) place[e] = static_cast<int32_t>(out.size());
      out.push_back(std::move(entries[e]));
    }
    for (size_t e = 0; e < entries.size(); ++e) wait(static_cast<int32_t>(e));
    return out;
  }

  const ScheduleDraft& draft_;
  const RankSchedule& out_;
  const RankRounds& exchange_;
};

// Returns the position of a matrix in a box's own stack; -1 if it is not there.
int64_t stack_place(const CutTensor& tensor, const Box& box, int64_t number) {
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

std::vector<Piece> storage_pieces(const StoragePlan& plan, int32_t m,
                                  int32_t rank) {
  const OwnedMatrix& matrix = plan.matrices[index(m)];
  const CutTensor& tensor = plan.tensors[index(matrix.tensor)];
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

int64_t stored_elements(const StoragePlan& plan, int32_t tensor, int32_t rank) {
  int64_t sum = 0;
  for (const Box& box : plan.tensors[index(tensor)].stored[index(rank)])
    sum += box.elements();
  return sum;
}

int64_t ScheduledState::elements() const {
  int64_t product = 1;
  for (const int64_t side : shape) product *= side;
  return product;
}

std::string_view kind_text(const ScheduleEntry& entry) {
  if (entry.is_compute()) return "compute";
  if (is_of_team(entry.purpose)) return "exchange";
  switch (entry.kind) {
    case EntryKind::kAllToAll:
      return "all_to_all";
    case EntryKind::kBroadcast:
      return "broadcast";
    default:
      return "wait";
  }
}

RankSchedule make_storage_schedule(const StoragePlan& plan, int32_t rank,
                                   int64_t width) {
  if (rank < 0 || rank >= plan.world)
    throw UsageError(cat("rank ", rank, " of a plan for ", plan.world,
                         " ranks; expected 0 to ", plan.world - 1));
  ScheduleDraft draft(plan, rank, width);
  std::vector<UpdateBatch> local = StatesMaker(draft).make();
  const RankRounds exchange = add_storage_rounds(draft);
  draft.out.updates.batches.push_back(std::move(local));
  for (const Round& round : draft.out.rounds)
    draft.out.room_bytes =
        std::max(draft.out.room_bytes, rooms_of(round.shared).back());
  draft.out.actions = LineStep(draft, exchange).run();
  return std::move(draft.out);
}

}  // namespace canzona::plan
