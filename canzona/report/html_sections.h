// The HTML report on plans: its view of them, what its drawings take, and its
// sections.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/report/html.h"
#include "canzona/report/places.h"
#include "canzona/report/report_plan.h"

namespace canzona {

// The sections of the HTML report look at these plans and share these figures.

// Plans to show. With one plan `before` and `after` are the same.
struct PageView {
  const std::vector<ReportPlan>& plans;
  size_t before = 0;
  size_t after = 0;

  explicit PageView(const std::vector<ReportPlan>& shown);
  bool several() const { return plans.size() > 1; }
  bool two() const { return before != after; }
  const ReportPlan& old_plan() const { return plans[before]; }
  const ReportPlan& plan() const { return plans[after]; }
  // Returns the two plans to set against each other, or the only one.
  std::vector<const ReportPlan*> pair() const;
};

// Load of every rank over a period, as a multiple of `unit` ticks.
std::vector<double> rank_loads(const ReportPlan& shown, double unit);

// Mean load of a rank over a period, in ticks; 0 without matrices.
double mean_load(const ReportPlan& shown);

// "rank 11 (home 1, t 3)"; the stage too where there are several.
std::string rank_title(const Mesh& mesh, int32_t rank);

// Home of a tensor among all homes of its stage; kEveryHome if it has none.
int32_t home_of(const PlanPart& plan, int32_t tensor);
int32_t stage_of_bucket(const PlanPart& plan, const Bucket& bucket);

// Cost of a matrix in an ordinary step, with its share of the refreshes.
double mean_cost(const SettledRequest& plan, size_t matrix);

// Ticks as predicted time: "1.21 ms".
std::string ticks_text(const SettledRequest& plan, double ticks);

// "nominal rate, no cost table" or "measured on <device>".
std::string rate_text(const SettledRequest& plan);

int64_t parameter_bytes(const SettledRequest& plan);

// Drawings of the load of every rank; loads are multiples of the mean. `width`
// is that of the drawing.

// Ranks that are drawn as a bar each; more become a grid and a curve.
inline constexpr size_t kMaxBars = 64;

struct LoadSeries {
  std::string name;
  std::string css;
  std::vector<double> loads;  // per rank
};

// One bar per rank and series, side by side.
std::string load_bars(const Mesh& mesh, const std::vector<LoadSeries>& series,
                      const std::vector<Reference>& references,
                      double width = kDrawingWidth);

// One cell per rank: homes from left to right, tp downwards, stages as bands,
// coloured by load over `bound`: what lies above it holds up the step.
// If a mesh is too large, a cell stands for several ranks and shows the
// busiest; the note says so (empty otherwise).
struct LoadGrid {
  std::string svg;
  std::string note;
};
LoadGrid load_grid(const Mesh& mesh, const LoadSeries& series, double bound,
                   double width = kDrawingWidth);
// The colours of the grid, from idle to overloaded.
struct HeatClass {
  std::string css;
  std::string text;
};
std::vector<HeatClass> heat_classes();

// Ranks sorted from the busiest to the least loaded, one line per series.
std::string load_curve(const std::vector<LoadSeries>& series,
                       const std::vector<Reference>& references,
                       double width = kDrawingWidth);

// The micro-groups of one home, as rounds of blocks per tp rank.
//
//   const int32_t rank = busiest_rank(shown);
//   for (const DrawnRound& round : rounds_of(plan, coordinates_of(mesh, rank)))
//   …

struct Block {
  size_t matrix = 0;
  double cost = 0;  // ticks, mean over a period
};

struct DrawnRound {
  int32_t number = 0;
  std::vector<std::vector<Block>> blocks;  // per tp rank
  double widest = 0;                       // work of its busiest owner
};

// The rank with the largest load over a period, the first of equals.
int32_t busiest_rank(const ReportPlan& shown);

// The rounds of the home (and stage) of `at`, in order.
std::vector<DrawnRound> rounds_of(const PlanPart& plan, const Coordinates& at);

// Distinct shapes of the matrices in `rounds`, the largest first.
std::vector<MatrixShape> shapes_of(const SettledRequest& plan,
                                   const std::vector<DrawnRound>& rounds);

// The table of tensors as compact JSON for the report's script.
//
// A model has tens of thousands of tensors but few kinds of them, so that
// what repeats is stored once:
//
//   patterns  names without their numbers: ["layers.", ".mlp.up"] with 7 is
//             "layers.7.mlp.up"
//   kinds     [shape, role, cut, rule, cost, cost as text, bytes, bytes as
//             text], cost in ticks
//   buckets   [stage, part] of each bucket
//   rows      [pattern, kind, bucket, home, owner, numbers of the name…],
//             home -1: every home; owner: a tp coordinate, several of them in
//             a list, or -1: every tp rank
//   parts     [tp, homes, ep coordinate, its label in the table]
//   mesh      [tp, cp, ep] of the whole, which says where in the world the
//             ranks of a part are

std::string tensor_data_json(const Plan& plan);

// A name as literal pieces with a number between each two.
struct NameParts {
  std::vector<std::string> pieces;
  std::vector<int64_t> numbers;
};
// Joined again, the parts give the name exactly: runs of digits that would not
// come back the same (leading zeros, too many digits) stay in the pieces.
NameParts split_name(std::string_view name);

// The tp coordinates that compute the matrices of a tensor, each once; empty:
// every tp rank.
std::vector<int32_t> owners_of_tensor(const PlanPart& plan, int32_t tensor);

// Returns what stands before the home of an expert that is planned apart: "ep
// 1".
std::string part_label(const PlanPart& part);

// Ticks of all matrices of a tensor, mean over a period.
double cost_of_tensor(const SettledRequest& plan, int32_t tensor);

// The sections of the HTML report, in the order of the page. Each appends one
// <section> and decides nothing but how to show what the plans say.

void add_headline(Html& out, const PageView& view);
void add_strategies(Html& out, const PageView& view);  // several plans only
void add_loads(Html& out, const PageView& view);
void add_buckets(Html& out, const PageView& view);
void add_micro_groups(Html& out, const PageView& view);
void add_memory(Html& out, const PageView& view);
void add_zero(Html& out, const PageView& view);  // where there is any
void add_wire(Html& out, const PageView& view);
void add_schedule(Html& out, const PageView& view);
void add_tensors(Html& out, const PageView& view);
void add_glossary(Html& out);

}  // namespace canzona
