// Carries out the schedules of all ranks on names of elements, to see where each
// of them arrives.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/plan/storage/storage_schedule.h"
#include "canzona/plan/storage/test_storage.h"

namespace canzona::plan::storage_schedule_test {

// Ranks whose slots hold names of elements in the place of numbers. Each rank
// has one thread, which waits in every collective until all of its ranks have
// come; what is on its way is not touched before somebody has waited for it.
class Players {
 public:
  Players(const StoragePlan& plan, int64_t width) : plan_(plan) {
    for (int32_t r = 0; r < plan.world; ++r) {
      Player& p = players_.emplace_back();
      p.schedule = make_storage_schedule(plan, r, width);
      p.slots.assign(index(p.schedule.slot_elements), kNothing);
    }
  }

  void play() {
    while (step()) {
    }
    for (const Player& p : players_) {
      ASSERT_EQ(p.next, p.schedule.actions.size())
          << "rank " << p.schedule.rank << " waits for ever in "
          << p.schedule.actions[p.next].label;
      EXPECT_TRUE(p.flying.empty()) << "not waited for";
    }
    expect_all_done();
  }

 private:
  static constexpr int64_t kNothing = -1;
  struct Range {
    int64_t first = 0, count = 0;
    bool meets(const Range& other) const {
      return first < other.first + other.count && other.first < first + count &&
             count > 0 && other.count > 0;
    }
  };
  struct Flight {
    std::vector<Range> read, written;
  };
  struct Player {
    RankSchedule schedule;
    std::vector<int64_t> slots;
    size_t next = 0;
    int64_t slot = 0;                  // of the round that is computed
    std::map<int32_t, Flight> flying;  // by action
    // Elements of the rank's storage that were applied, by tensor.
    std::map<int32_t, std::multiset<int64_t>> applied;
    std::map<int32_t, int64_t> computed;  // elements, by matrix
    std::map<int32_t, std::multiset<int64_t>> prepared;
  };

  // A name for element (i, j) of a matrix; updates are field 7.
  static int64_t name(int32_t m, int64_t i, int64_t j, int64_t field) {
    return ((int64_t{m} * 512 + i) * 512 + j) * 8 + field;
  }
  static constexpr int64_t kUpdate = 7;
  int fields(int32_t m) const {
    const RuleGroup& g = plan_.groups[index(
        plan_.tensors[index(plan_.matrices[index(m)].tensor)].group)];
    return make_rule_facts(g.rule, g.options)->gather_fields();
  }

  bool step() {
    bool moved = false;
    for (Player& p : players_)
      while (p.next < p.schedule.actions.size()) {
        const ScheduleEntry& a = p.schedule.actions[p.next];
        if (a.kind == EntryKind::kAllToAll || a.kind == EntryKind::kBroadcast)
          break;
        a.kind == EntryKind::kWait ? wait(p, a) : compute(p, a);
        ++p.next;
        moved = true;
      }
    for (Player& p : players_) moved = meet(p) || moved;
    return moved;
  }

  void wait(Player& p, const ScheduleEntry& a) {
    ASSERT_EQ(a.after.size(), 1U);
    ASSERT_LT(a.after[0], static_cast<int32_t>(p.next));
    EXPECT_EQ(p.flying.erase(a.after[0]), 1U) << a.label;
  }

  // Carries a collective out if all of its ranks have come to it.
  bool meet(Player& p) {
    if (p.next >= p.schedule.actions.size()) return false;
    const ScheduleEntry& mine = p.schedule.actions[p.next];
    if (mine.ranks_of < 0) return false;
    const auto& ranks = p.schedule.groups[index(mine.ranks_of)];
    EXPECT_EQ(std::ranges::count(ranks, p.schedule.rank), 1);
    std::vector<Player*> all;
    for (int32_t r : ranks) {
      Player& other = players_[index(r)];
      if (other.next >= other.schedule.actions.size()) return false;
      const ScheduleEntry& a = other.schedule.actions[other.next];
      if (a.ranks_of != mine.ranks_of || a.kind != mine.kind) return false;
      EXPECT_EQ(a.label, mine.label);
      all.push_back(&other);
    }
    if (is_of_team(mine.purpose))
      exchange(all);
    else
      mine.kind == EntryKind::kAllToAll ? all_to_all(all) : broadcast(all);
    for (Player* one : all) ++one->next;
    return true;
  }

  void issue(Player& p, Flight flight) {
    for (const auto& [action, other] : p.flying) {
      for (const Range& w : flight.written) {
        for (const Range& r : other.read) EXPECT_FALSE(w.meets(r));
        for (const Range& r : other.written) EXPECT_FALSE(w.meets(r));
      }
      for (const Range& r : flight.read)
        for (const Range& w : other.written) EXPECT_FALSE(r.meets(w));
    }
    p.flying[static_cast<int32_t>(p.next)] = std::move(flight);
  }

  // Elements of all slots, one block after another.
  struct Blocks {
    int64_t at = 0;
    std::vector<int64_t> counts;

    Range range() const {
      return {at, std::accumulate(counts.begin(), counts.end(), int64_t{0})};
    }
  };
  Blocks blocks(const Player& p, bool sends) const {
    const ScheduleEntry& e = p.schedule.actions[p.next];
    const ExchangeTable& moved = e.exchange;
    const int64_t wire = size_of(plan_.options.wire);
    const Extent& area = sends ? moved.source : moved.target;
    Blocks out{p.schedule.slot_element(e, area.first, wire),
               sends ? moved.send_bytes : moved.receive_bytes};
    const auto& offsets = sends ? moved.send_offsets : moved.receive_offsets;
    int64_t at = 0;
    for (size_t i = 0; i < out.counts.size(); ++i) {
      EXPECT_EQ(offsets[i], at);
      at += out.counts[i];
      out.counts[i] /= wire;
    }
    EXPECT_EQ(area.count, at);
    return out;
  }

  void all_to_all(const std::vector<Player*>& all) {
    bool any = false;
    for (size_t to = 0; to < all.size(); ++to) {
      Player& receiver = *all[to];
      const Blocks received = blocks(receiver, false);
      ASSERT_EQ(received.counts.size(), all.size());
      int64_t place = received.at;
      for (size_t from = 0; from < all.size(); ++from) {
        const Blocks sent = blocks(*all[from], true);
        const int64_t count = sent.counts[to];
        ASSERT_EQ(count, received.counts[from]);
        if (from == to) {
          EXPECT_EQ(count, 0);
        }
        any = any || count > 0;
        int64_t source = sent.at;
        for (size_t i = 0; i < to; ++i) source += sent.counts[i];
        for (int64_t i = 0; i < count; ++i)
          receiver.slots.at(index(place + i)) =
              all[from]->slots.at(index(source + i));
        place += count;
      }
      issue(receiver, {{blocks(receiver, true).range()}, {received.range()}});
    }
    EXPECT_TRUE(any) << "an exchange of nothing";
  }

  // Checks sizes and places alone: the rule decides what lies in rooms.
  void exchange(const std::vector<Player*>& all) {
    const auto at = [](const Player* p) -> const ScheduleEntry& {
      return p->schedule.actions[p->next];
    };
    bool any = false;
    for (size_t to = 0; to < all.size(); ++to) {
      const ScheduleEntry& mine = at(all[to]);
      const int64_t room = all[to]->schedule.room_bytes;
      for (size_t from = 0; from < all.size(); ++from) {
        const int64_t bytes = at(all[from]).exchange.send_bytes[to];
        const ExchangeTable& moved = mine.exchange;
        ASSERT_EQ(bytes, moved.receive_bytes[from]) << mine.label;
        any = any || bytes > 0;
        if (bytes > 0) {
          EXPECT_LE(moved.target.first + moved.receive_offsets[from] + bytes,
                    room);
        }
      }
      issue(*all[to], {});
    }
    EXPECT_TRUE(any) << "an exchange of nothing";
  }

  void broadcast(const std::vector<Player*>& all) {
    const ScheduleEntry& a = all[0]->schedule.actions[all[0]->next];
    const Player& root = players_[index(a.root)];
    const ScheduleEntry& from = root.schedule.actions[root.next];
    EXPECT_GT(a.all.count, 0);
    const int64_t first = root.schedule.slot_element(from, from.all.first, 1);
    for (Player* p : all) {
      const ScheduleEntry& to = p->schedule.actions[p->next];
      ASSERT_EQ(to.root, a.root);
      ASSERT_EQ(to.all.count, a.all.count);
      const bool sends = to.root == p->schedule.rank;
      const Range range{p->schedule.slot_element(to, to.all.first, 1),
                        to.all.count};
      for (int64_t i = 0; i < to.all.count; ++i)
        p->slots.at(index(range.first + i)) = root.slots.at(index(first + i));
      issue(*p, sends ? Flight{{range}, {}} : Flight{{}, {range}});
    }
  }

  int64_t read(Player& p, int64_t at) {
    at += p.slot;
    for (const auto& [action, flight] : p.flying)
      for (const Range& w : flight.written)
        EXPECT_FALSE(w.meets({at, 1})) << "read before it has come";
    return p.slots.at(index(at));
  }
  void write(Player& p, int64_t at, int64_t value) {
    at += p.slot;
    for (const auto& [action, flight] : p.flying)
      for (const auto* ranges : {&flight.read, &flight.written})
        for (const Range& r : *ranges)
          EXPECT_FALSE(r.meets({at, 1})) << "written while on its way";
    p.slots.at(index(at)) = value;
  }

  void compute(Player& p, const ScheduleEntry& a) {
    if (a.kind == EntryKind::kUpdateElements)
      for (const ElementTensor& e : p.schedule.elements)
        for (int64_t i = 0; i < e.count; ++i) p.applied[e.tensor].insert(i);
    if (a.kind == EntryKind::kUpdateMatrices)
      for (const UpdateBatch& batch : p.schedule.local())
        for (const int32_t k : batch.members) {
          const KeptMatrix& kept = p.schedule.kept[index(k)];
          p.computed[kept.matrix] += kept.dims[0] * kept.dims[1];
          for (const Piece& piece : kept.pieces) apply(p, kept.matrix, piece);
        }
    if (a.round < 0) return;
    const Round& round = p.schedule.rounds[index(a.round)];
    p.slot = round.slot_at;
    if (a.kind == EntryKind::kPrepare) prepare(p, round);
    if (a.kind == EntryKind::kTransform)
      transform(p, index(a.round), a.segment);
    if (a.shared >= 0) team_stage(p, a, round.shared[index(a.shared)]);
    if (a.kind != EntryKind::kApply) return;
    for (const SlotPiece& piece : round.applied) {
      const int32_t m = p.schedule.kept[index(piece.kept)].matrix;
      int64_t seen = 0;
      for (const SlotRectangle& r : parts_of(piece))
        for (int64_t i = 0; i < r.num_rows; ++i)
          for (int64_t j = 0; j < r.num_cols; ++j, ++seen)
            ASSERT_EQ(read(p, r.at + i * r.num_cols + j),
                      name(m, r.first_row + i, r.first_col + j, kUpdate));
      EXPECT_EQ(seen, piece.elements());
      apply(p, m, stored(p, piece));
    }
    const int64_t wide = plan_.options.wire == DType::kBf16 ? 2 : 1;
    for (const ElementTensor& e : round.given)
      for (int64_t i = 0; i < e.count; ++i) p.applied[e.tensor].insert(i);
    for (const ElementTensor& e : round.taken)
      for (int64_t i = 0; i < e.count; ++i) {
        for (int64_t w = 0; w < wide; ++w)
          ASSERT_EQ(read(p, e.at + i * wide + w), -2 - e.tensor);
        p.applied[e.tensor].insert(i);
      }
  }

  static std::vector<SlotRectangle> parts_of(const SlotPiece& piece) {
    return piece.parts.empty() ? std::vector<SlotRectangle>{piece}
                               : piece.parts;
  }
  static const Piece& stored(const Player& p, const SlotPiece& piece) {
    return p.schedule.kept[index(piece.kept)].pieces[index(piece.piece)];
  }

  void apply(Player& p, int32_t m, const Piece& piece) {
    const int32_t t = plan_.matrices[index(m)].tensor;
    for (int64_t i = 0; i < piece.elements(); ++i)
      p.applied[t].insert(piece.parameter + i);
  }

  void prepare(Player& p, const Round& round) {
    for (const SlotPiece& piece : round.prepared) {
      const int32_t m = p.schedule.kept[index(piece.kept)].matrix;
      const int32_t t = plan_.matrices[index(m)].tensor;
      for (int64_t i = 0; i < piece.elements(); ++i)
        p.prepared[t].insert(stored(p, piece).gradient + i);
      if (piece.at < 0 && piece.parts.empty()) continue;
      for (int f = 0; f < fields(m); ++f)
        for (const SlotRectangle& r : parts_of(piece))
          for (int64_t i = 0; i < r.num_rows; ++i)
            for (int64_t j = 0; j < r.num_cols; ++j)
              write(p, r.at + f * r.field_stride + i * r.num_cols + j,
                    name(m, r.first_row + i, r.first_col + j, f));
    }
  }

  // Expects all fields of `own`, a part of matrix `m`, in the slot; the
  // rectangles are relative to (first_row, first_col).
  void expect_fields(Player& p, int32_t m, const Rectangle& own,
                     const std::vector<SlotRectangle>& rectangles,
                     int64_t first_row, int64_t first_col) {
    for (int f = 0; f < fields(m); ++f) {
      std::set<std::pair<int64_t, int64_t>> seen;
      for (const SlotRectangle& r : rectangles)
        for (int64_t i = 0; i < r.num_rows; ++i)
          for (int64_t j = 0; j < r.num_cols; ++j) {
            const int64_t row = first_row + r.first_row + i;
            const int64_t col = first_col + r.first_col + j;
            ASSERT_EQ(read(p, r.at + f * r.field_stride + i * r.num_cols + j),
                      name(m, row, col, f));
            EXPECT_TRUE(seen.insert({row, col}).second);
          }
      EXPECT_EQ(std::ssize(seen), own.elements());
    }
    p.computed[m] += own.elements();
  }
  void write_updates(Player& p, int32_t m,
                     const std::vector<SlotRectangle>& updates,
                     int64_t first_row, int64_t first_col) {
    for (const SlotRectangle& r : updates)
      for (int64_t i = 0; i < r.num_rows; ++i)
        for (int64_t j = 0; j < r.num_cols; ++j)
          write(p, r.at + i * r.num_cols + j,
                name(m, first_row + r.first_row + i,
                     first_col + r.first_col + j, kUpdate));
  }

  void team_stage(Player& p, const ScheduleEntry& a, const SharedMatrix& team) {
    EXPECT_TRUE(team.is_member());
    if (a.kind == EntryKind::kLoadStrips)
      expect_fields(p, team.matrix, team.own, team.rectangles, 0, 0);
    if (a.kind == EntryKind::kMultiplyStrips &&
        a.segment + 1 == team.facts.segments)
      write_updates(p, team.matrix, team.updates, 0, 0);
  }

  void transform(Player& p, size_t number, int32_t segment) {
    const Round& round = p.schedule.rounds[number];
    for (const UpdateBatch& batch : p.schedule.updates.batches[number]) {
      if (batch.segment != segment) continue;
      std::vector<const SlotMatrix*> members;
      for (size_t i = 0; i < batch.members.size(); ++i)
        for (const SlotMatrix& one : round.computed)
          if (one.kept == batch.members[i] && one.block == batch.blocks[i])
            members.push_back(&one);
      ASSERT_EQ(members.size(), batch.members.size());
      const auto matrix = [&](const SlotMatrix* one) {
        return p.schedule.kept[index(one->kept)].matrix;
      };
      for (const SlotMatrix* one : members) {
        EXPECT_EQ(one->own.elements(), batch.dims[0] * batch.dims[1]);
        expect_fields(p, matrix(one), one->own, one->rectangles,
                      one->own.first_row, one->own.first_col);
      }
      // A batch is read before its updates are written, others' later.
      for (const SlotMatrix* one : members)
        write_updates(p, matrix(one), one->updates, one->own.first_row,
                      one->own.first_col);
    }
    if (segment > 0) return;
    const int64_t wide = plan_.options.wire == DType::kBf16 ? 2 : 1;
    for (const ElementTensor& e : round.given)
      for (int64_t i = 0; i < e.count * wide; ++i)
        write(p, e.at + i, -2 - e.tensor);
  }

  void expect_all_done() {
    std::map<int32_t, int64_t> computed;
    std::vector<std::map<std::vector<int64_t>, int>> counted(
        plan_.tensors.size());
    for (const Player& p : players_) {
      for (const auto& [m, elements] : p.computed) {
        computed[m] += elements;
        EXPECT_EQ(
            std::ranges::count(distinct(plan_.matrices[index(m)].owners()),
                               p.schedule.rank),
            1);
      }
      for (int32_t t = 0; t < std::ssize(plan_.tensors); ++t) {
        const int64_t stored = stored_elements(plan_, t, p.schedule.rank);
        const auto applied = p.applied.find(t);
        const int64_t done =
            applied == p.applied.end() ? 0 : std::ssize(applied->second);
        ASSERT_EQ(done, stored);
        for (int64_t i = 0; i < stored; ++i)
          ASSERT_EQ(applied->second.count(i), 1U);
      }
    }
    EXPECT_EQ(computed.size(), plan_.matrices.size());
    for (const auto& [m, elements] : computed)
      EXPECT_EQ(elements,
                plan_.matrices[index(m)].rows * plan_.matrices[index(m)].cols);
    expect_each_counted_once();
  }

  void expect_each_counted_once() const {
    for (size_t t = 0; t < plan_.tensors.size(); ++t) {
      int64_t counted = 0, elements = 1;
      for (int64_t side : plan_.tensors[t].shape) elements *= side;
      for (const Player& p : players_)
        for (const Extent& e : p.schedule.counted[t]) counted += e.count;
      EXPECT_EQ(counted, elements) << plan_.tensors[t].name;
    }
  }

  const StoragePlan& plan_;
  std::vector<Player> players_;
};

}  // namespace canzona::plan::storage_schedule_test
