// The rounds of a home carried out on slots whose numbers say which element
// they are: every element reaches whoever computes it, and its update comes
// back.
//
//   HomeOfSlots home(part, stage, home);
//   home.check();
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/rounds.h"

namespace canzona::plan {

class HomeOfSlots {
 public:
  HomeOfSlots(const PlanPart& part, int32_t stage, int32_t home) : part_(part) {
    for (int32_t t = 0; t < part.grid.tp; ++t) {
      const Coordinates at =
          coordinates_of(part.grid, part.grid.rank(stage, home, t));
      RankOfHome rank;
      rank.kept = kept_by(part, at, lay_out_rank(part, at));
      rank.rounds = make_rounds(part, at, rank.kept, 1);
      ranks_.push_back(std::move(rank));
    }
  }

  void check() {
    for (size_t r = 0; r < ranks_[0].rounds.size(); ++r) {
      for (RankOfHome& rank : ranks_) fill(rank, rank.rounds[r]);
      for (size_t table = 0; table < Round::kNumTables; ++table)
        exchange(r, Purpose::kGatherMatrices, table);
      for (size_t t = 0; t < ranks_.size(); ++t) compute(t, r);
      for (size_t table = 0; table < Round::kNumTables; ++table)
        exchange(r, Purpose::kScatterMatrices, table);
      for (RankOfHome& rank : ranks_) expect_updated(rank, rank.rounds[r]);
    }
  }

  int64_t largest_round() const {
    int64_t most = 0;
    for (const RankOfHome& rank : ranks_)
      for (const Round& round : rank.rounds)
        most = std::max(most, round.num_elements);
    return most;
  }

  // Bytes that rank t sends to others in all rounds.
  int64_t sent(size_t t, Purpose purpose) const {
    int64_t bytes = 0;
    for (const Round& round : ranks_[t].rounds)
      for (const ExchangeTable& table : round.tables(purpose))
        for (size_t to = 0; !table.empty && to < ranks_.size(); ++to)
          if (to != t) bytes += table.send_bytes[to];
    return bytes;
  }

 private:
  static constexpr int64_t kUpdated = int64_t{1} << 40;

  struct RankOfHome {
    Kept kept;
    std::vector<Round> rounds;
    std::vector<int64_t> slot;
  };

  int64_t label(int32_t matrix, int64_t row, int64_t col) const {
    const Matrix& m = part_.matrices[static_cast<size_t>(matrix)];
    return (int64_t{matrix} << 24) + row * m.cols + col;
  }

  template <class Visit>
  void each(const SlotRectangle& r, int32_t matrix, Visit visit) const {
    int64_t at = r.at;
    for (int64_t row = r.first_row; row < r.end_row(); ++row)
      for (int64_t col = r.first_col; col < r.end_col(); ++col)
        visit(static_cast<size_t>(at++), label(matrix, row, col));
  }

  static int32_t matrix_of(const RankOfHome& rank, int32_t kept) {
    return rank.kept.matrices[static_cast<size_t>(kept)].matrix;
  }

  // Parts of pieces that several members get, and other pieces.
  template <class Visit>
  void each_of_pieces(const RankOfHome& rank, const Round& round,
                      Visit visit) const {
    for (const SlotPiece& piece : round.prepared) {
      const int32_t matrix = matrix_of(rank, piece.kept);
      if (piece.parts.empty()) each(piece, matrix, visit);
      for (const SlotRectangle& part : piece.parts) each(part, matrix, visit);
    }
  }

  void fill(RankOfHome& rank, const Round& round) const {
    rank.slot.assign(static_cast<size_t>(round.num_elements), -1);
    each_of_pieces(rank, round, [&](size_t at, int64_t element) {
      EXPECT_EQ(rank.slot.at(at), -1) << "two pieces at one place";
      rank.slot.at(at) = element;
    });
  }

  void exchange(size_t r, Purpose purpose, size_t table) {
    if (ranks_[0].rounds[r].tables(purpose)[table].empty) return;
    std::vector<std::vector<int64_t>> before;
    for (const RankOfHome& rank : ranks_) before.push_back(rank.slot);
    for (size_t from = 0; from < ranks_.size(); ++from)
      for (size_t to = 0; to < ranks_.size(); ++to) {
        const ExchangeTable& s = ranks_[from].rounds[r].tables(purpose)[table];
        const ExchangeTable& d = ranks_[to].rounds[r].tables(purpose)[table];
        ASSERT_EQ(s.send_bytes[to], d.receive_bytes[from]);
        const int64_t send_at = s.source.first / 4;
        const int64_t receive_at = d.target.first / 4;
        for (int64_t i = 0; i < s.send_bytes[to] / 4; ++i)
          ranks_[to].slot.at(static_cast<size_t>(
              receive_at + d.receive_offsets[from] / 4 + i)) =
              before[from].at(
                  static_cast<size_t>(send_at + s.send_offsets[to] / 4 + i));
      }
  }

  // Every member has all elements of its strips, and makes updates of them.
  void compute(size_t t, size_t r) {
    RankOfHome& rank = ranks_[t];
    for (const auto& [matrix, rectangles] : computed_by(rank, r)) {
      const Matrix& m = part_.matrices[static_cast<size_t>(matrix)];
      std::map<int64_t, int> seen;
      for (const SlotRectangle& rectangle : rectangles)
        each(rectangle, matrix, [&](size_t at, int64_t element) {
          EXPECT_EQ(rank.slot.at(at), element);
          ++seen[element];
          rank.slot.at(at) += kUpdated;
        });
      const int64_t num_members = members(matrix);
      EXPECT_EQ(static_cast<int64_t>(seen.size()),
                m.rows * m.cols / num_members)
          << "of rank " << t;
      const int64_t side = std::max(m.rows, m.cols);
      const auto owners = part_.owners[static_cast<size_t>(matrix)];
      const auto member =
          std::find(owners.begin(), owners.end(), static_cast<int32_t>(t)) -
          owners.begin();
      for (const auto& [element, times] : seen) {
        EXPECT_EQ(times, 1);
        const int64_t in = element & ((1 << 24) - 1);
        const int64_t along = m.rows > m.cols ? in / m.cols : in % m.cols;
        EXPECT_EQ(along * num_members / side, member);
      }
    }
  }

  // Matrices with what this rank puts together of them.
  static std::map<int32_t, std::vector<SlotRectangle>> computed_by(
      const RankOfHome& rank, size_t r) {
    std::map<int32_t, std::vector<SlotRectangle>> all;
    for (const SlotMatrix& alone : rank.rounds[r].computed)
      all[matrix_of(rank, alone.kept)] = alone.rectangles;
    for (const SharedMatrix& shared : rank.rounds[r].shared)
      if (shared.facts.has_helper() && !shared.is_head())
        EXPECT_TRUE(shared.rectangles.empty());
      else if (shared.is_member())
        all[shared.matrix] = shared.rectangles;
    return all;
  }

  // Those that have something of a matrix; a helper has not.
  int64_t members(int32_t matrix) const {
    const Matrix& m = part_.matrices[static_cast<size_t>(matrix)];
    const auto rule = make_rule_facts(part_.rule, part_.rule_options);
    if (rule->strips({m.rows, m.cols}).has_helper()) return 1;
    return std::ssize(part_.owners[static_cast<size_t>(matrix)]);
  }

  void expect_updated(const RankOfHome& rank, const Round& round) const {
    each_of_pieces(rank, round, [&](size_t at, int64_t element) {
      EXPECT_EQ(rank.slot.at(at), element + kUpdated);
    });
  }

  const PlanPart& part_;
  std::vector<RankOfHome> ranks_;
};

// Checks every home of a plan's first part, the bytes that its ranks are
// predicted to send and the slots they need.
inline void check_slots(const Plan& plan) {
  const PlanPart& part = plan.parts[0];
  const std::vector<RankCost> predicted = predict(part);
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  int64_t largest = 0;
  for (int32_t home = 0; home < part.grid.homes(); ++home) {
    HomeOfSlots one(part, 0, home);
    one.check();
    largest = std::max(largest, one.largest_round());
    for (int32_t t = 0; t < part.grid.tp; ++t) {
      const RankCost& rank =
          predicted[static_cast<size_t>(part.grid.rank(0, home, t))];
      const auto wire = [&](Collective c) {
        return rank.wire[static_cast<size_t>(c)].sent();
      };
      EXPECT_EQ(one.sent(static_cast<size_t>(t), Purpose::kGatherMatrices),
                wire(Collective::kGather));
      EXPECT_EQ(one.sent(static_cast<size_t>(t), Purpose::kScatterMatrices),
                wire(Collective::kScatter));
    }
  }
  EXPECT_EQ(largest * kBytesPerFp32, exchange_slot_bytes(part, *rule)[0]);
}

}  // namespace canzona::plan
