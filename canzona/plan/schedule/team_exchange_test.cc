// What moves for teams: every element of a matrix reaches the member that has
// its strip, updates come back, and bytes and slots are those predicted.
#include <gtest/gtest.h>

#include <map>

#include "canzona/plan/cost/team_cost.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/rounds.h"
#include "canzona/plan/schedule/team_strips.h"
#include "canzona/plan/testing/test_teams.h"
#include "canzona/rules/strips.h"

namespace canzona::team_exchange_test {
namespace {

constexpr int64_t kUpdated = int64_t{1} << 40;

// One rank's rounds, and a slot whose numbers say which element they are.
struct RankOfHome {
  Kept kept;
  std::vector<Round> rounds;
  std::vector<int64_t> slot;
};

class Home {
 public:
  Home(const PlanPart& part, int32_t stage, int32_t home) : part_(part) {
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
      exchange(r, Purpose::kGatherMatrices);
      for (size_t t = 0; t < ranks_.size(); ++t) compute(t, r);
      exchange(r, Purpose::kScatterMatrices);
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
    for (const SlotPiece& piece : round.pieces) {
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

  void exchange(size_t r, Purpose purpose) {
    const bool gathers = purpose == Purpose::kGatherMatrices;
    for (size_t table = 0; table < 2; ++table) {
      if (ranks_[0].rounds[r].tables(purpose)[table].empty) continue;
      std::vector<std::vector<int64_t>> before;
      for (const RankOfHome& rank : ranks_) before.push_back(rank.slot);
      for (size_t from = 0; from < ranks_.size(); ++from)
        for (size_t to = 0; to < ranks_.size(); ++to) {
          const Round& a = ranks_[from].rounds[r];
          const Round& b = ranks_[to].rounds[r];
          const ExchangeTable& s = a.tables(purpose)[table];
          const ExchangeTable& d = b.tables(purpose)[table];
          ASSERT_EQ(s.send_bytes[to], d.receive_bytes[from]);
          const int64_t send_at = gathers ? a.shards_at : 0;
          const int64_t receive_at = gathers ? 0 : b.shards_at;
          for (int64_t i = 0; i < s.send_bytes[to] / 4; ++i)
            ranks_[to].slot.at(static_cast<size_t>(
                receive_at + d.receive_offsets[from] / 4 + i)) =
                before[from].at(
                    static_cast<size_t>(send_at + s.send_offsets[to] / 4 + i));
        }
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
      EXPECT_EQ(static_cast<int64_t>(seen.size()),
                m.rows * m.cols / members(matrix))
          << "of rank " << t;
      const int64_t side = std::max(m.rows, m.cols);
      const auto owners = part_.owners[static_cast<size_t>(matrix)];
      const auto place =
          std::find(owners.begin(), owners.end(), static_cast<int32_t>(t)) -
          owners.begin();
      for (const auto& [element, times] : seen) {
        EXPECT_EQ(times, 1);
        const int64_t in = element & ((1 << 24) - 1);
        const int64_t along = m.rows > m.cols ? in / m.cols : in % m.cols;
        EXPECT_EQ(along * members(matrix) / side, place);
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
      if (shared.is_member()) all[shared.matrix] = shared.rectangles;
    return all;
  }

  int64_t members(int32_t matrix) const {
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

void check_plan(const Plan& plan) {
  EXPECT_GT(count_teams(plan), 0u);
  const PlanPart& part = plan.parts[0];
  const std::vector<RankCost> predicted = predict(part);
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  int64_t largest = 0;
  for (int32_t home = 0; home < part.grid.homes(); ++home) {
    Home one(part, 0, home);
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

TEST(TeamExchange, StripsReachTheirMembersAndComeBack) {
  for (const char* mesh : {"tp=4", "tp=8", "dp=2,tp=4"})
    for (const int strips : {2, 8})
      check_plan(plan_of(wide_and_small(1), mesh, with_teams(),
                         rule_with_strips(strips)));
}

// Fused parts, which tp cuts section by section, and uncut matrices.
TEST(TeamExchange, StripsCutSectionsAndUncutMatrices) {
  Model model = wide_and_small(1);
  Tensor& fused = model.tensors[1];
  fused.sections = {{"gate", {0, 1024, 1024, 1}, 1},
                    {"up", {1024, 1024, 1024, 1}, 1}};
  check_plan(plan_of(model, "tp=4", with_teams(), rule_with_strips()));
  model.tensors[1].cut = Cut::kNone;
  model.tensors[0].cut = Cut::kNone;
  check_plan(plan_of(model, "tp=4", with_teams(), rule_with_strips()));
}

// Slices of ZeRO make places of data-parallel ranks: a home of several.
TEST(TeamExchange, HomesOfPlaces) {
  PlanOptions options = with_teams();
  options.zero.sizes = parse_zero("hier:4", 4);
  check_plan(plan_of(wide_and_small(1), "dp=4", options, rule_with_strips()));
}

// Of a segment the head gets 3m²(k-1)/k bytes in sums, a member m² in factors,
// but for the triangle's diagonal and a few scalars.
TEST(TeamExchange, BytesOfSumsAndFactors) {
  const auto rule = make_rule_facts("muon", {{"strips", "8"}});
  const StripFacts facts = rule->strips({5120, 51200});
  const double square = 5120.0 * 5120.0;
  for (const int32_t size : {2, 4, 8}) {
    int64_t sent = 0, received = 0, factors = 0;
    for (int32_t i = 0; i < size; ++i) {
      const TeamBytes bytes = team_bytes(facts, size, i);
      sent += bytes.sums_sent;
      received += bytes.sums_received;
      factors += bytes.factors_sent - bytes.factors_received;
    }
    EXPECT_EQ(sent, received);
    EXPECT_EQ(factors, 0);
    const TeamBytes head = team_bytes(facts, size, 0);
    const TeamBytes last = team_bytes(facts, size, size - 1);
    EXPECT_NEAR(static_cast<double>(head.sums_received) / facts.segments,
                3 * square * (size - 1) / size, square / 1000);
    EXPECT_EQ(head.factors_received, 0);
    EXPECT_NEAR(static_cast<double>(last.factors_received) / facts.segments,
                square, square / 1000);
  }
}

}  // namespace
}  // namespace canzona::team_exchange_test
