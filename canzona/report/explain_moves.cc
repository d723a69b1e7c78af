// Describes what moves for one matrix in a step.
#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/report/explain.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"

namespace canzona::report {
namespace {

constexpr size_t kMaxPieces = 16;
constexpr size_t kMoveLabel = 12;

const Matrix& matrix_of(const PlanPart& plan, int32_t matrix) {
  return plan.matrices[static_cast<size_t>(matrix)];
}

// Counts the planes of the home, other than `t`, that compute the matrix.
template <class Counts>
int64_t others(std::span<const int32_t> owners, const Mesh& grid, int32_t t,
               const Counts& counts) {
  int64_t number = 0;
  for (const int32_t owner : owners) number += owner != t && counts(owner);
  for (int32_t owner = 0; owners.empty() && owner < grid.tp; ++owner)
    number += owner != t && counts(owner);
  return number;
}

std::string range_text(int64_t first, int64_t count, int64_t all) {
  if (count == all) return fmt::format("all {}", all);
  return fmt::format("{} to {}", first, first + count - 1);
}

// A home is one rank, or a group of ranks if tensors are cut into slices.
std::string homes_text(const PlanPart& plan, int32_t number) {
  return fmt::format("{} {}", number,
                     plan.grid.places > 1 ? "groups" : "homes");
}

std::string sum_over_homes(const PlanPart& plan, int32_t tensor) {
  const auto at = static_cast<size_t>(tensor);
  const int32_t home = plan.home[at];
  const int32_t homes = plan.buffer_of(tensor).num_homes;
  const std::string size = human_count(
      static_cast<double>(shard_elements(plan.mesh, plan.model.tensors[at])));
  if (homes == 1)
    return plan.grid.places > 1 ? "nothing more: there is one group"
                                : "nothing: there is one data-parallel rank";
  if (plan.traffic == Traffic::kAllReduce ||
      plan.traffic == Traffic::kBroadcast)
    return fmt::format(
        "all-reduce of bucket {} over {}, {} elements of "
        "this tensor per tp rank",
        bucket_number(plan, tensor), homes_text(plan, homes), size);
  return fmt::format(
      "reduce-scatter of bucket {} over {}: {} elements per "
      "tp rank to {} {} ({})",
      bucket_number(plan, tensor), homes_text(plan, homes), size,
      plan.grid.places > 1 ? "group" : "home", home,
      ranks_text(ranks_of_home(plan, tensor, home)));
}

std::string backward_line(const PlanPart& plan, int32_t tensor) {
  const ZeroSizes& zero = plan.options.zero.sizes;
  std::string out = sum_over_homes(plan, tensor);
  if (zero.z2 > 1)
    out = fmt::format(
        "a reduce-scatter in groups of {} in every micro-batch; then {}",
        zero.z2, out);
  if (plan.num_replicas() > 1)
    out += fmt::format("; {} the sum over {} replicas",
                       adds_replicas_at_once(plan) ? "at once with" : "then",
                       plan.num_replicas());
  return out;
}

std::string forward_line(const PlanPart& plan, int32_t tensor) {
  const int32_t bucket = bucket_number(plan, tensor);
  const int32_t homes = plan.buffer_of(tensor).num_homes;
  if (homes == 1 || plan.traffic == Traffic::kAllReduce) return "nothing";
  if (plan.traffic == Traffic::kBroadcast)
    return fmt::format("nothing: home {} broadcast the weights in the step",
                       plan.home[static_cast<size_t>(tensor)]);
  return fmt::format("all-gather of bucket {} over {}", bucket,
                     homes_text(plan, homes));
}

Field moved_field(const char* key, const char* heading, Bytes bytes) {
  const int64_t count = bytes.value();
  return {key, heading, count, count == 0 ? "stays" : human_bytes(count)};
}

Listing pieces_of(const Matrix& m, const Moves& moves) {
  Listing pieces(kMaxPieces);
  for (const MovedPiece& p : moves.pieces) {
    const Route& route = p.route;
    Row& row = pieces.add(
        {{"rank", "<stored on", p.rank, cat("rank ", p.rank)},
         {"", "<rows", range_text(route.first_row, route.num_rows, m.rows)},
         {"", "<columns", range_text(route.first_col, route.num_cols, m.cols)},
         moved_field("gather_bytes", ">gather", p.gather),
         moved_field("scatter_bytes", ">scatter", p.scatter)});
    row.set("first_row", route.first_row).set("num_rows", route.num_rows);
    row.set("first_col", route.first_col).set("num_cols", route.num_cols);
    if (p.to >= 0) row.set("to", p.to);
  }
  return pieces;
}

// Pieces are cut at the borders of members' strips or owners' blocks.
void add_team_pieces(const PlanPart& plan, int32_t matrix,
                     const TeamStory& team, Moves& moves) {
  const Matrix& m = matrix_of(plan, matrix);
  const Tensor& tensor = plan.model.tensors[static_cast<size_t>(m.tensor)];
  const auto rule = make_rule_facts(plan.rule, plan.rule_options);
  const std::vector<int32_t> owners =
      distinct(plan.owners[static_cast<size_t>(matrix)]);
  const int32_t home = plan.home[static_cast<size_t>(m.tensor)];
  const auto add = [&](const Route& own, size_t i) {
    const int64_t elements = own.elements();
    if (elements == 0) return;
    MovedPiece piece{rank_of(plan, m.tensor, home, own.t), own, Bytes(0),
                     Bytes(0), team.members[i].rank};
    if (owners[i] != own.t) {
      if (sends_to(plan.grid, tensor, own.t, owners[i]))
        piece.gather = Bytes(elements * rule->gather_bytes_per_element());
      piece.scatter = Bytes(elements * rule->scatter_bytes_per_element());
    }
    moves.pieces.push_back(piece);
  };
  for (const Route& route : routes_of(plan, matrix))
    for (size_t i = 0; i < team.members.size(); ++i)
      for (const Rectangle& rectangle : team.members[i].rectangles) {
        Route own = route;
        static_cast<Rectangle&>(own) = meet(route, rectangle);
        add(own, i);
      }
}

Moves moves_in(const PlanPart& plan, int32_t matrix) {
  const Matrix& m = matrix_of(plan, matrix);
  const Tensor& tensor = plan.model.tensors[static_cast<size_t>(m.tensor)];
  const auto rule = make_rule_facts(plan.rule, plan.rule_options);
  const auto owners = plan.owners[static_cast<size_t>(matrix)];
  const int32_t home = std::max(0, plan.home[static_cast<size_t>(m.tensor)]);
  Moves moves;
  moves.algorithm = rule->algorithm(shape_of(m));
  if (const auto team = team_of(plan, matrix)) {
    for (const TeamMember& member : team->members) {
      moves.gather += member.gathered;
      moves.scatter += member.scattered;
    }
    add_team_pieces(plan, matrix, *team, moves);
    return moves;
  }
  for (const Route& route : routes_of(plan, matrix)) {
    const int64_t elements = route.num_rows * route.num_cols;
    MovedPiece piece{rank_of(plan, m.tensor, home, route.t), route, Bytes(0),
                     Bytes(0)};
    piece.gather = Bytes(elements * rule->gather_bytes_per_element()) *
                   others(owners, plan.grid, route.t, [&](int32_t owner) {
                     return sends_to(plan.grid, tensor, route.t, owner);
                   });
    if (!owners.empty())
      piece.scatter =
          Bytes(elements * rule->scatter_bytes_per_element()) *
          others(owners, plan.grid, route.t, [](int32_t) { return true; });
    moves.gather += piece.gather;
    moves.scatter += piece.scatter;
    moves.pieces.push_back(piece);
  }
  return moves;
}

}  // namespace

Moves moves_of(const Plan& whole, int32_t number) {
  const auto [plan, matrix] = matrix_in_part(whole, number);
  return moves_in(*plan, matrix);
}

Document moves_view(const Plan& whole, int32_t number) {
  const MatrixInPart at = matrix_in_part(whole, number);
  const PlanPart& plan = *at.part;
  const Matrix& matrix = matrix_of(plan, at.matrix);
  const Moves moves = moves_in(plan, at.matrix);
  const Listing pieces = pieces_of(matrix, moves);
  Document out;
  const auto line = [&](const char* name, const std::string& text) {
    out.labelled({"", name, "", text}, kMoveLabel);
  };
  out.title("What moves");
  line("backward", backward_line(plan, matrix.tensor));
  if (plan.grid.tp == 1) {
    line("step", "nothing: tp is 1");
    out.set("pieces", pieces.value());
  } else {
    line("step", cat("gather ", human_bytes(moves.gather.value()), ", ",
                     moves.algorithm, ", scatter ",
                     human_bytes(moves.scatter.value())));
    out.table("pieces", pieces, "", kMoveLabel + 2);
    if (const auto team = team_of(plan, at.matrix))
      out.add_text(team_view(plan, *team, kMoveLabel + 2));
  }
  line("forward", forward_line(plan, matrix.tensor));
  if (plan.options.zero.sizes.z3 > 1)
    line("before use", cat("all-gather of its module in groups of ",
                           plan.options.zero.sizes.z3));
  out.set("gather_bytes", moves.gather.value());
  return out.set("scatter_bytes", moves.scatter.value());
}

}  // namespace canzona::report
