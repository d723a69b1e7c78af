#include "canzona/plan/schedule/routes.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona {
namespace {

// Returns the rows of a section, or the columns, that tp rank t stores.
Extent share_of(int64_t rows, int32_t tp, int32_t t) {
  const int64_t first = rows * t / tp;
  return {first, rows * (t + 1) / tp - first};
}

// Rows of one section in the shard of one tp rank.
struct ShardRows {
  ExtentCopy rows;  // from the tensor to the shard
  int32_t section = 0;
  int64_t section_row = 0;  // of the first

  ShardRows of_slice(const Extent& slice) const {
    const ExtentCopy own = rows.to_within(slice);
    return {own, section, section_row + own.from - rows.from};
  }
};

void append_runs(const Section& section, int32_t number, const Extent& rows,
                 std::vector<ShardRows>& out) {
  const int64_t run = std::max<int64_t>(section.rows.run, 1);
  for (int64_t i = rows.first; i < rows.end();) {
    const int64_t stop = std::min(rows.end(), (i / run + 1) * run);
    out.push_back({{section.rows.row(i), 0, stop - i}, number, i});
    i = stop;
  }
}

// Returns the rows of the shard on tp rank t, in the tensor's order.
std::vector<ShardRows> shard_rows_of(const Tensor& tensor, int32_t tp,
                                     int32_t t) {
  std::vector<ShardRows> runs;
  const auto share = [&](int64_t rows) {
    return tensor.cut == Cut::kRows ? share_of(rows, tp, t) : Extent{0, rows};
  };
  if (tensor.sections.empty()) {
    const Extent own = share(tensor.rows());
    if (own.count > 0)
      runs.push_back({{own.first, 0, own.count}, 0, own.first});
    return runs;
  }
  for (size_t n = 0; n < tensor.sections.size(); ++n)
    append_runs(tensor.sections[n], static_cast<int32_t>(n),
                share(tensor.sections[n].rows.rows()), runs);
  std::ranges::sort(runs, {}, [](const ShardRows& s) { return s.rows.from; });
  int64_t shard_row = 0;
  for (ShardRows& run : runs) {
    run.rows.to = shard_row;
    shard_row += run.rows.count;
  }
  return runs;
}

// Appends a route, or extends the last one if the new route continues it in
// matrix and shard.
void append(std::vector<Route>& routes, const Route& next) {
  if (next.elements() == 0) return;
  if (!routes.empty()) {
    Route& last = routes.back();
    if (last.t == next.t && last.first_col == next.first_col &&
        last.end_row() == next.first_row &&
        last.shard_row + last.num_rows == next.shard_row) {
      last.num_rows += next.num_rows;
      return;
    }
  }
  routes.push_back(next);
}

void append_routes(const Tensor& tensor, const Matrix& matrix, const Mesh& grid,
                   int32_t plane, std::vector<Route>& routes) {
  const int32_t tp = grid.tp_ranks();
  const int32_t t = grid.tp_rank_of(plane);
  const Extent cols = tensor.cut == Cut::kColumns
                          ? share_of(tensor.cols(), tp, t)
                          : Extent{0, tensor.cols()};
  const Extent slice =
      slice_rows(grid, tensor, grid.slice_of(grid.place_of(plane)));
  for (const ShardRows& whole : shard_rows_of(tensor, tp, t)) {
    const ShardRows run = whole.of_slice(slice);
    ExtentCopy rows = run.rows;  // from the matrix
    if (matrix.section >= 0) {
      if (matrix.section != run.section) continue;
      rows =
          ExtentCopy{run.section_row, run.rows.to, run.rows.count}.from_within(
              {matrix.first_row, matrix.rows});
      rows.from -= matrix.first_row;
    }
    append(routes,
           {{rows.from, rows.count, cols.first, cols.count}, plane, rows.to});
  }
}

}  // namespace

std::vector<Route> routes_of(const Tensor& tensor, const Matrix& matrix,
                             const Mesh& grid) {
  std::vector<Route> routes;
  for (int32_t t = 0; t < grid.tp; ++t) {
    append_routes(tensor, matrix, grid, t, routes);
  }
  return routes;
}

std::vector<Route> routes_of(const Tensor& tensor, const Matrix& matrix,
                             int32_t tp) {
  Mesh grid;
  grid.tp = tp;
  return routes_of(tensor, matrix, grid);
}

bool is_cut(const Mesh& grid, const Tensor& tensor) {
  return grid.places > 1 || (tensor.cut != Cut::kNone && grid.tp > 1);
}

bool sends_to(const Mesh& grid, const Tensor& tensor, int32_t t,
              int32_t owner) {
  return tensor.cut != Cut::kNone ||
         grid.tp_rank_of(t) == grid.tp_rank_of(owner);
}

std::vector<Route> routes_of(const PlanPart& plan, int32_t matrix) {
  const Matrix& m = plan.matrices[static_cast<size_t>(matrix)];
  return routes_of(plan.model.tensors[static_cast<size_t>(m.tensor)], m,
                   plan.grid);
}

void append_routes(const PlanPart& plan, int32_t matrix, int32_t t,
                   std::vector<Route>& routes) {
  const Matrix& m = plan.matrices[static_cast<size_t>(matrix)];
  append_routes(plan.model.tensors[static_cast<size_t>(m.tensor)], m, plan.grid,
                t, routes);
}

namespace {

int64_t elements_in_slice(const Mesh& grid, const Tensor& tensor,
                          const Matrix& matrix, int32_t plane) {
  if (matrix.section < 0)
    return slice_elements(grid, tensor, grid.slice_of(grid.place_of(plane)));
  std::vector<Route> routes;
  append_routes(tensor, matrix, grid, plane, routes);
  int64_t sum = 0;
  for (const Route& r : routes) sum += r.elements();
  return sum;
}

}  // namespace

int64_t elements_on(const PlanPart& plan, int32_t matrix, int32_t t) {
  const Matrix& m = plan.matrices[static_cast<size_t>(matrix)];
  const Tensor& tensor = plan.model.tensors[static_cast<size_t>(m.tensor)];
  const int32_t tp = plan.grid.tp;
  if (plan.grid.places > 1) return elements_in_slice(plan.grid, tensor, m, t);
  if (tensor.cut == Cut::kNone) return m.rows * m.cols;
  if (tensor.cut == Cut::kColumns) return m.rows * (m.cols / tp);
  if (m.section < 0) return m.rows / tp * m.cols;
  const int64_t rows =
      tensor.sections.empty()
          ? tensor.rows()
          : tensor.sections[static_cast<size_t>(m.section)].rows.rows();
  return share_of(rows, tp, t).meet({m.first_row, m.rows}).count * m.cols;
}

std::vector<int64_t> elements_by_rank(const PlanPart& plan, int32_t matrix) {
  const auto tp = static_cast<size_t>(plan.grid.tp);
  std::vector<int64_t> out(tp, elements_on(plan, matrix, 0));
  // Whole tensors are cut evenly; heads and other sections may not be.
  const bool even = plan.grid.places == 1 &&
                    plan.matrices[static_cast<size_t>(matrix)].section < 0;
  if (even) return out;
  for (size_t t = 1; t < tp; ++t) {
    out[t] = elements_on(plan, matrix, static_cast<int32_t>(t));
  }
  return out;
}

namespace {

// Returns the number of strips if those who compute a matrix get pieces of it
// from others and its rule takes strips one by one; else 0.
bool is_cut_by_tp(const PlanPart& part, const Matrix& matrix) {
  return part.model.tensors[index(matrix.tensor)].cut != Cut::kNone &&
         part.grid.tp_ranks() > 1;
}

int32_t strips_of(const PlanPart& part, TeamCosts& costs, int32_t m) {
  const Matrix& matrix = part.matrices[index(m)];
  if (!is_cut_by_tp(part, matrix)) return 0;
  const StripFacts& facts = costs.strips({matrix.rows, matrix.cols});
  return facts.strips > 1 && facts.one_by_one ? facts.strips : 0;
}

int64_t elements_of(const PlanPart& part, int32_t m) {
  return part.matrices[index(m)].rows * part.matrices[index(m)].cols;
}

std::vector<RoundMatrix> as_the_plan_has_them(
    const PlanPart& part, TeamTable& teams, std::span<const int32_t> matrices) {
  std::vector<RoundMatrix> out;
  for (const int32_t m : matrices)
    out.push_back({m, part.owners[index(m)], teams.is_team(index(m))});
  return out;
}

}  // namespace

bool goes_by_strips(const PlanPart& part, int32_t round, int32_t num_rounds) {
  return part.options.exchange == ExchangeBy::kStrips &&
         (round == 0 || round + 1 == num_rounds);
}

StripExchange::StripExchange(const PlanPart& part, TeamTable& teams,
                             std::span<const int32_t> matrices)
    : StripExchange(part, teams.costs(),
                    as_the_plan_has_them(part, teams, matrices)) {}

StripExchange::StripExchange(const PlanPart& part, TeamCosts& costs,
                             std::span<const RoundMatrix> matrices)
    : num_planes_(part.grid.tp) {
  for (const RoundMatrix& of : matrices)
    if (of.is_team) return;
  for (const RoundMatrix& of : matrices) {
    if (of.owners.size() != 1) continue;
    const int32_t m = of.matrix;
    const int32_t strips = strips_of(part, costs, m);
    if (strips == 0) continue;
    const int32_t owner = of.owners[0];
    const auto found = std::ranges::find(chosen_, owner, &Chosen::owner);
    if (found == chosen_.end())
      chosen_.push_back({owner, m, strips});
    else if (elements_of(part, m) > elements_of(part, found->matrix))
      *found = {owner, m, strips};
  }
  for (const Chosen& chosen : chosen_) size_ = std::max(size_, chosen.strips);
}

int32_t StripExchange::strips(int32_t matrix) const {
  const auto found = std::ranges::find(chosen_, matrix, &Chosen::matrix);
  return found == chosen_.end() ? 0 : found->strips;
}

int32_t StripExchange::exchange_of(int32_t matrix, int32_t strip) const {
  const auto found = std::ranges::find(chosen_, matrix, &Chosen::matrix);
  const int32_t strips = found->strips;
  const int32_t first = found->owner * strips / num_planes_;
  return (strip - first + strips) % strips * size_ / strips;
}

Rectangle strip_rectangle(const PlanPart& part, int32_t matrix, int32_t strips,
                          int32_t strip) {
  const Matrix& m = part.matrices[index(matrix)];
  return strips_of_member({m.rows, m.cols}, strips, strips, strip);
}

bool may_exchange_strips(const Plan& plan) {
  for (const PlanPart& part : plan.parts) {
    TeamTable teams(part);
    for (int32_t m = 0; m < std::ssize(part.matrices); ++m)
      if (!part.owners[index(m)].empty() &&
          strips_of(part, teams.costs(), m) > 0)
        return true;
  }
  return false;
}

std::string why_no_strips(const Plan& plan) {
  std::string rule = cat("rule ", plan.rule);
  const auto device = plan.rule_options.find("device");
  if (device != plan.rule_options.end())
    rule += cat(" with device=", device->second);
  const auto has_owners = [](const PlanPart& part) {
    for (size_t m = 0; m < part.owners.size(); ++m)
      if (!part.owners[m].empty()) return true;
    return false;
  };
  if (std::ranges::none_of(plan.parts, has_owners))
    return cat("strategy ", plan.options.strategy,
               " gives matrices no owners that they are sent to: every tp rank "
               "computes their updates");
  for (const PlanPart& part : plan.parts) {
    TeamTable teams(part);
    for (int32_t m = 0; m < std::ssize(part.matrices); ++m) {
      const Matrix& matrix = part.matrices[index(m)];
      if (!part.owners[index(m)].empty() && is_cut_by_tp(part, matrix) &&
          teams.costs().strips({matrix.rows, matrix.cols}).strips > 1)
        return cat(rule, " needs all strips of a matrix at once");
    }
  }
  return cat(rule,
             " has no matrix that tp ranks exchange and that is cut into ",
             "strips on ", to_string(plan.mesh));
}

}  // namespace canzona
