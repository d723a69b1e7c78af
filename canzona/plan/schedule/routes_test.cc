#include "canzona/plan/schedule/routes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <tuple>

#include "canzona/plan/schedule/slices.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::plan::routes_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A 4x6 matrix, rows over two ranks: each stores two rows of all columns.
TEST(Routes, SayWhatEveryRankStores) {
  const Tensor tensor = matrix_tensor("m", 4, 6, Cut::kRows);
  EXPECT_THAT(
      routes_of(tensor, {0, -1, 0, 4, 6}, 2),
      ElementsAre(
          Route{{.first_row = 0, .num_rows = 2, .first_col = 0, .num_cols = 6},
                /*t=*/0,
                /*shard_row=*/0},
          Route{{.first_row = 2, .num_rows = 2, .first_col = 0, .num_cols = 6},
                /*t=*/1,
                /*shard_row=*/0}));
}

TEST(Routes, OfColumnsAndOfUncutTensors) {
  const Matrix matrix{0, -1, 0, 4, 6};
  EXPECT_THAT(
      routes_of(matrix_tensor("m", 4, 6, Cut::kColumns), matrix, 2),
      ElementsAre(Route{{0, 4, 0, 3}, 0, 0}, Route{{0, 4, 3, 3}, 1, 0}));
  EXPECT_THAT(
      routes_of(matrix_tensor("m", 4, 6), matrix, 2),
      ElementsAre(Route{{0, 4, 0, 6}, 0, 0}, Route{{0, 4, 0, 6}, 1, 0}));
  EXPECT_THAT(routes_of(matrix_tensor("m", 4, 6, Cut::kRows), matrix, 1),
              ElementsAre(Route{{0, 4, 0, 6}, 0, 0}));
}

// The oracle labels each row of a tensor with its section and its number there,
// by loops over groups and heads, without using Section.
struct RowLabel {
  int32_t section;
  int64_t number;
};
using Labels = std::vector<RowLabel>;

Labels plain_labels(int64_t rows) {
  Labels labels;
  for (int64_t r = 0; r < rows; ++r) labels.push_back({0, r});
  return labels;
}

// Group by group: its query heads, its key head, its value head.
Labels qkv_labels(int64_t groups, int64_t query_heads_per_group,
                  int64_t head_dim) {
  Labels labels;
  int64_t numbers[3] = {0, 0, 0};
  for (int64_t g = 0; g < groups; ++g) {
    for (int32_t section = 0; section < 3; ++section) {
      const int64_t heads = section == 0 ? query_heads_per_group : 1;
      for (int64_t r = 0; r < heads * head_dim; ++r) {
        labels.push_back({section, numbers[section]++});
      }
    }
  }
  return labels;
}

Labels gate_up_labels(int64_t ffn) {
  Labels labels;
  for (int32_t section = 0; section < 2; ++section) {
    for (int64_t r = 0; r < ffn; ++r) labels.push_back({section, r});
  }
  return labels;
}

// An element's position in a shard and in the matrix: t, shard row and column,
// matrix row and column.
using Element = std::tuple<int32_t, int64_t, int64_t, int64_t, int64_t>;
using Elements = std::vector<Element>;

// Sharding from first principles. By rows: every section's rows are dealt to
// ranks in equal runs, a rank keeps its rows in the tensor's order. By columns:
// equal runs of columns. Uncut: everybody keeps all.
class Sharding {
 public:
  Sharding(const Tensor& tensor, Labels labels, int32_t tp)
      : tensor_(tensor), labels_(std::move(labels)), tp_(tp) {
    for (const RowLabel& label : labels_) {
      counts_.resize(
          std::max(counts_.size(), static_cast<size_t>(label.section) + 1));
      ++counts_[static_cast<size_t>(label.section)];
    }
  }

  bool stores(int32_t t, int64_t row, int64_t col) const {
    if (tensor_.cut == Cut::kColumns) {
      return col / (tensor_.cols() / tp_) == t;
    }
    if (tensor_.cut == Cut::kNone) return true;
    const RowLabel& label = labels_[static_cast<size_t>(row)];
    return label.number / (counts_[static_cast<size_t>(label.section)] / tp_) ==
           t;
  }

  // Elements of a matrix, sorted: rows [first, first + rows) of a section, or
  // (section -1) of the tensor.
  Elements of(const Matrix& m) const {
    Elements out;
    for (int32_t t = 0; t < tp_; ++t) {
      int64_t shard_row = 0;
      for (int64_t row = 0; row < tensor_.rows(); ++row) {
        int64_t shard_col = 0;
        for (int64_t col = 0; col < tensor_.cols(); ++col) {
          if (!stores(t, row, col)) continue;
          const int64_t at = row_in(m, row);
          if (at >= 0) out.emplace_back(t, shard_row, shard_col, at, col);
          ++shard_col;
        }
        shard_row += shard_col > 0;
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  int64_t row_in(const Matrix& m, int64_t row) const {
    if (m.section < 0) return row;
    const RowLabel& label = labels_[static_cast<size_t>(row)];
    const int64_t at = label.number - m.first_row;
    return label.section == m.section && at >= 0 && at < m.rows ? at : -1;
  }

  const Tensor& tensor_;
  Labels labels_;
  int32_t tp_;
  std::vector<int64_t> counts_;  // rows per section
};

Elements painted(const std::vector<Route>& routes) {
  Elements out;
  for (const Route& r : routes) {
    for (int64_t i = 0; i < r.num_rows; ++i) {
      for (int64_t j = 0; j < r.num_cols; ++j) {
        out.emplace_back(r.t, r.shard_row + i, j, r.first_row + i,
                         r.first_col + j);
      }
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

// A plan of one tensor, as far as routes look at it.
PlanPart part_with(const Tensor& tensor, const std::vector<Matrix>& matrices,
                   int32_t tp) {
  PlanPart plan;
  plan.grid.tp = tp;
  plan.model.tensors = {tensor};
  plan.matrices = matrices;
  return plan;
}

// Equal as sorted lists of (place in a shard, place in the matrix): nothing is
// missing, nothing comes twice, and both ends of every element are right, which
// is all that gather and scatter need.
void expect_routes(const Tensor& tensor, const Labels& labels,
                   const std::vector<Matrix>& matrices, int32_t tp) {
  const Sharding sharding(tensor, labels, tp);
  const PlanPart plan = part_with(tensor, matrices, tp);
  Elements all;
  for (size_t m = 0; m < matrices.size(); ++m) {
    const auto number = static_cast<int32_t>(m);
    const Elements expected = sharding.of(matrices[m]);
    EXPECT_EQ(painted(routes_of(plan, number)), expected)
        << "tp " << tp << ", matrix " << m;
    all.insert(all.end(), expected.begin(), expected.end());
    const std::vector<int64_t> by_rank = elements_by_rank(plan, number);
    ASSERT_EQ(std::ssize(by_rank), tp);
    for (int32_t t = 0; t < tp; ++t) {
      const auto held =
          std::count_if(expected.begin(), expected.end(),
                        [&](const Element& e) { return std::get<0>(e) == t; });
      EXPECT_EQ(elements_on(plan, number, t), held)
          << "tp " << tp << ", matrix " << m << ", rank " << t;
      EXPECT_EQ(by_rank[static_cast<size_t>(t)], held);
    }
  }
  const int64_t copies = tensor.cut == Cut::kNone ? tp : 1;
  EXPECT_EQ(std::ssize(all), tensor.elements() * copies);
}

TEST(Routes, SlicesHaveTheRowsOfTheirQuotients) {
  for (const int32_t places : {1, 2, 4, 7, 8, 1024})
    for (const int64_t rows : {0, 1, 7, 1023, 1024, 1536}) {
      int32_t next = 0;
      each_slice(rows, places, [&](int32_t slice, int64_t own) {
        EXPECT_EQ(slice, next++);
        EXPECT_EQ(own, rows * (slice + 1) / places - rows * slice / places);
      });
      EXPECT_EQ(next, places);
    }
}

TEST(Routes, PaintWholeTensors) {
  for (int32_t tp : {1, 2, 4, 7, 8}) {
    for (Cut cut : {Cut::kNone, Cut::kRows, Cut::kColumns}) {
      for (int64_t other : {1, 3}) {
        const int64_t rows = cut == Cut::kRows ? 2 * tp : other;
        const int64_t cols = cut == Cut::kColumns ? tp : other;
        const Tensor tensor = matrix_tensor("m", rows, cols, cut);
        expect_routes(tensor, plain_labels(rows), {{0, -1, 0, rows, cols}}, tp);
      }
    }
  }
}

TEST(Routes, OfNothingAreNone) {
  const Tensor tensor = matrix_tensor("m", 0, 6, Cut::kRows);
  EXPECT_THAT(routes_of(tensor, {0, -1, 0, 0, 6}, 2), IsEmpty());
  EXPECT_EQ(elements_on(part_with(tensor, {{0, -1, 0, 0, 6}}, 2), 0, 1), 0);
}

// Fused qkv: 2 groups of 4 query heads of 4 rows. Up to 2 ranks get whole
// groups; with 4 and 8, key and value heads are cut inside.
struct Qkv {
  static constexpr int64_t kGroups = 2, kQueries = 4, kHead = 4, kCols = 3;
  static constexpr int64_t kGroupRows = (kQueries + 2) * kHead;

  static Tensor tensor() {
    Tensor t = matrix_tensor("qkv", kGroups * kGroupRows, kCols, Cut::kRows);
    t.sections = {{"q", {0, 16, 24, 2}, 8},
                  {"k", {16, 4, 24, 2}, 2},
                  {"v", {20, 4, 24, 2}, 2}};
    return t;
  }
  static Labels labels() { return qkv_labels(kGroups, kQueries, kHead); }
};

TEST(Routes, PaintFusedQkv) {
  for (int32_t tp : {1, 2, 4, 8}) {
    const Tensor tensor = Qkv::tensor();
    expect_routes(tensor, Qkv::labels(), {{0, -1, 0, 48, 3}}, tp);
  }
}

TEST(Routes, PaintQAndKAndV) {
  for (int32_t tp : {1, 2, 4, 8}) {
    expect_routes(Qkv::tensor(), Qkv::labels(),
                  {{0, 0, 0, 32, 3}, {0, 1, 0, 8, 3}, {0, 2, 0, 8, 3}}, tp);
  }
}

TEST(Routes, PaintHeads) {
  std::vector<Matrix> heads;
  for (int32_t section = 0; section < 3; ++section) {
    for (int64_t head = 0; head < (section == 0 ? 8 : 2); ++head) {
      heads.push_back({0, section, head * 4, 4, 3});
    }
  }
  for (int32_t tp : {1, 2, 4, 8}) {
    expect_routes(Qkv::tensor(), Qkv::labels(), heads, tp);
  }
}

// A key head of 4 rows over 4 of 8 ranks: one row each.
TEST(Routes, CutInsideAHead) {
  EXPECT_THAT(
      routes_of(Qkv::tensor(), {0, 1, 4, 4, 3}, 8),
      ElementsAre(Route{{0, 1, 0, 3}, 4, 4}, Route{{1, 1, 0, 3}, 5, 4},
                  Route{{2, 1, 0, 3}, 6, 4}, Route{{3, 1, 0, 3}, 7, 4}));
}

// A tensor of interleaved sections that tp does not cut, or cuts by columns.
TEST(Routes, PaintPartsOfOtherCuts) {
  for (Cut cut : {Cut::kNone, Cut::kColumns}) {
    Tensor tensor = Qkv::tensor();
    tensor.cut = cut;
    expect_routes(tensor, Qkv::labels(),
                  {{0, 0, 0, 32, 3}, {0, 1, 0, 8, 3}, {0, 2, 0, 8, 3}}, 3);
    expect_routes(tensor, Qkv::labels(), {{0, -1, 0, 48, 3}}, 3);
  }
}

TEST(Routes, PaintGateAndUp) {
  for (int32_t tp : {1, 2, 4, 7, 8}) {
    const int64_t ffn = 2 * tp;
    Tensor tensor = matrix_tensor("fc1", 2 * ffn, 3, Cut::kRows);
    tensor.sections = {{"gate", {0, ffn, ffn, 1}, 1},
                       {"up", {ffn, ffn, ffn, 1}, 1}};
    expect_routes(tensor, gate_up_labels(ffn), {{0, -1, 0, 2 * ffn, 3}}, tp);
    expect_routes(tensor, gate_up_labels(ffn),
                  {{0, 0, 0, ffn, 3}, {0, 1, 0, ffn, 3}}, tp);
  }
}

// Every rank's share of gate lies before its share of up, so the whole matrix
// needs two rectangles per rank, gate or up alone one.
TEST(Routes, JoinWhatLiesSideBySide) {
  Tensor tensor = matrix_tensor("fc1", 8, 3, Cut::kRows);
  tensor.sections = toy_gate_up_sections();
  tensor.sections[0].rows = {0, 4, 4, 1};
  tensor.sections[1].rows = {4, 4, 4, 1};
  EXPECT_THAT(
      routes_of(tensor, {0, -1, 0, 8, 3}, 2),
      ElementsAre(Route{{0, 2, 0, 3}, 0, 0}, Route{{4, 2, 0, 3}, 0, 2},
                  Route{{2, 2, 0, 3}, 1, 0}, Route{{6, 2, 0, 3}, 1, 2}));
  EXPECT_THAT(
      routes_of(tensor, {0, 1, 0, 4, 3}, 2),
      ElementsAre(Route{{0, 2, 0, 3}, 0, 2}, Route{{2, 2, 0, 3}, 1, 2}));
}

}  // namespace
}  // namespace canzona::plan::routes_test
