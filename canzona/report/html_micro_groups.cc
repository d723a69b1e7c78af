#include <algorithm>
#include <map>

#include "canzona/base/text.h"
#include "canzona/report/html.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/numbers.h"
#include "canzona/report/places.h"
#include "canzona/report/team_view.h"

namespace canzona {
namespace {

bool lives_at(const PlanPart& plan, const Matrix& matrix,
              const Coordinates& at) {
  const Bucket& bucket = plan.buckets[static_cast<size_t>(
      plan.bucket_of[static_cast<size_t>(matrix.tensor)])];
  const int32_t home = home_of(plan, matrix.tensor);
  return stage_of_bucket(plan, bucket) == at.stage &&
         (home == at.home || home == kEveryHome);
}

void add_block(const PlanPart& plan, size_t m, TeamTable& teams,
               DrawnRound& round) {
  const auto owners = plan.owners[m];
  const double cost = mean_cost(plan, m);
  if (owners.empty()) {  // every tp rank repeats it
    for (auto& blocks : round.blocks) blocks.push_back({m, cost});
    return;
  }
  if (!teams.is_shared(m)) {
    round.blocks[static_cast<size_t>(owners[0])].push_back({m, cost});
    return;
  }
  for (const MatrixShare& share : teams.shares(m))
    round.blocks[static_cast<size_t>(share.t)].push_back(
        {m, period_load(plan, share.cost) / plan.period});
}

}  // namespace

int32_t busiest_rank(const ReportPlan& shown) {
  return spread_of(period_loads(shown.plan, shown.ranks)).largest;
}

std::vector<DrawnRound> rounds_of(const PlanPart& plan, const Coordinates& at) {
  std::map<int32_t, DrawnRound> rounds;
  TeamTable teams(plan);
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    if (!lives_at(plan, plan.matrices[m], at)) continue;
    DrawnRound& round = rounds[plan.micro_group[m]];
    round.number = plan.micro_group[m];
    round.blocks.resize(static_cast<size_t>(plan.grid.tp));
    add_block(plan, m, teams, round);
  }
  std::vector<DrawnRound> out;
  for (auto& [number, round] : rounds) {
    for (const auto& blocks : round.blocks) {
      double sum = 0;
      for (const Block& block : blocks) sum += block.cost;
      round.widest = std::max(round.widest, sum);
    }
    out.push_back(std::move(round));
  }
  return out;
}

// Distinct shapes of the shown rounds, the largest first: each has a colour.
std::vector<MatrixShape> shapes_of(const SettledRequest& plan,
                                   const std::vector<DrawnRound>& rounds) {
  std::vector<MatrixShape> shapes;
  for (const DrawnRound& round : rounds) {
    for (const auto& blocks : round.blocks) {
      for (const Block& block : blocks) {
        const Matrix& matrix = plan.matrices[block.matrix];
        shapes.push_back({matrix.rows, matrix.cols});
      }
    }
  }
  std::sort(shapes.begin(), shapes.end(), [](auto a, auto b) {
    const int64_t x = a.rows * a.cols;
    const int64_t y = b.rows * b.cols;
    return x != y ? x > y : b < a;
  });
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  return shapes;
}

// Micro-groups of the home of the busiest rank: rounds from left to right, tp
// ranks downwards.
namespace {

constexpr double kRoundsLeft = 64;
constexpr size_t kMaxDrawnRounds = 48;
constexpr size_t kMaxListedRounds = 16;
constexpr int32_t kMaxRows = 32;
constexpr size_t kMaxBlocks = 2000;

int64_t fp32_bytes(const Matrix& matrix) {
  return matrix.rows * matrix.cols * kBytesPerFp32;
}

class RoundsDrawing {
 public:
  RoundsDrawing(const PlanPart& plan, const std::vector<DrawnRound>& rounds,
                double width = kDrawingWidth)
      : plan_(plan),
        width_(width),
        rounds_(rounds),
        shapes_(shapes_of(plan, rounds)),
        drawn_(std::min(rounds.size(), kMaxDrawnRounds)),
        rows_(std::min(plan.grid.tp, kMaxRows)) {
    for (size_t i = 0; i < drawn_; ++i) total_ += rounds[i].widest;
    const double room = width - kRoundsLeft - 8;
    gap_ = drawn_ > 1 ? std::min(6.0, room * 0.2 / static_cast<double>(drawn_))
                      : 0;
    scale_ =
        total_ > 0 ? (room - gap_ * static_cast<double>(drawn_)) / total_ : 0;
  }

  std::string draw() {
    Svg svg(width_, 24.0 + 24 * rows_, "Micro-groups of one home");
    for (int32_t t = 0; t < rows_; ++t)
      svg.text(kRoundsLeft - 8, 36 + 24 * t, "end", cat("t ", t));
    svg.text(kRoundsLeft - 8, 12, "end dim", "round");
    double x = kRoundsLeft;
    for (size_t i = 0; i < drawn_; ++i) {
      draw_round(svg, rounds_[i], x);
      x += rounds_[i].widest * scale_ + gap_;
    }
    return svg.take();
  }

  void put_shapes(Html& out) const {
    std::vector<LegendEntry> entries;
    for (size_t i = 0; i < std::min<size_t>(shapes_.size(), 12); ++i) {
      entries.push_back(
          {cat("s", i % 6), dims_text({shapes_[i].rows, shapes_[i].cols})});
    }
    put_legend(out, entries);
  }

  std::string note() const {
    std::string text;
    if (drawn_ < rounds_.size()) {
      text += cat("The first ", drawn_, " of ", rounds_.size(),
                  " rounds are drawn. ");
    }
    if (rows_ < plan_.grid.tp) {
      text += cat("The first ", rows_, " of ", plan_.grid.tp,
                  " tp ranks are drawn. ");
    }
    if (blocks_ > kMaxBlocks)
      text += cat("Only ", kMaxBlocks, " matrices are drawn. ");
    return text;
  }

 private:
  void draw_round(Svg& svg, const DrawnRound& round, double x) {
    const double width = round.widest * scale_;
    svg.rect({x, 18, width, 24.0 * rows_}, "round",
             cat("round ", round.number, ": ", ticks_text(plan_, round.widest),
                 " of work, predicted"));
    if (width > 14)
      svg.text(x + width / 2, 12, "middle", std::to_string(round.number));
    for (int32_t t = 0; t < rows_; ++t) {
      double at = x;
      for (const Block& block : round.blocks[static_cast<size_t>(t)]) {
        if (blocks_++ >= kMaxBlocks) return;
        const double wide = block.cost * scale_;
        draw_block(svg, block, {at, 20 + 24.0 * t, wide, 20});
        at += wide;
      }
    }
  }

  void draw_block(Svg& svg, const Block& block, const SvgBox& box) const {
    const Matrix& matrix = plan_.matrices[block.matrix];
    const auto colour = std::find(shapes_.begin(), shapes_.end(),
                                  MatrixShape{matrix.rows, matrix.cols}) -
                        shapes_.begin();
    const std::string shape = dims_text({matrix.rows, matrix.cols});
    const std::string& tensor =
        plan_.model.tensors[static_cast<size_t>(matrix.tensor)].name;
    svg.rect(box, cat(box.width < 4 ? "thin s" : "run s", colour % 6),
             cat(matrix_name(plan_.model, matrix, plan_.options.splits), ", ",
                 shape, ", ", human_bytes(fp32_bytes(matrix)), " fp32, ",
                 ticks_text(plan_, block.cost), " predicted", team_note(block)),
             tensor);
    if (box.width > 7.0 * static_cast<double>(shape.size()))
      svg.text(box.x + box.width / 2, box.y + 14, "middle on", shape);
  }

  // ", of a team of 4 with head t 2"; ", by blocks with 4 owners"
  std::string team_note(const Block& block) const {
    const auto owners = plan_.owners[block.matrix];
    if (owners.size() < 2) return "";
    if (TeamTable(plan_).is_in_blocks(block.matrix))
      return cat(", by blocks with ", distinct(owners).size(), " owners");
    return cat(", of a team of ", owners.size(), " with head t ", owners[0]);
  }

  const PlanPart& plan_;
  double width_;
  const std::vector<DrawnRound>& rounds_;
  std::vector<MatrixShape> shapes_;
  size_t drawn_;
  int32_t rows_;
  double total_ = 0;
  double gap_ = 0;
  double scale_ = 0;
  size_t blocks_ = 0;
};

// "2 of 5120×25600" for every shape in a cell, then the bytes.
void put_cell(Html& out, const PlanPart& plan,
              const std::vector<Block>& blocks) {
  std::map<MatrixShape, int64_t> count;
  int64_t bytes = 0;
  for (const Block& block : blocks) {
    const Matrix& matrix = plan.matrices[block.matrix];
    ++count[{matrix.rows, matrix.cols}];
    bytes += fp32_bytes(matrix);
  }
  out.add("<td>");
  for (const auto& [shape, number] : count) {
    out.put("{}{}<br>", number > 1 ? cat(number, " of ") : "",
            dims_text({shape.rows, shape.cols}));
  }
  out.put("<small>{}</small></td>", bytes > 0 ? human_bytes(bytes) : "–");
}

void put_table(Html& out, const PlanPart& plan,
               const std::vector<DrawnRound>& rounds) {
  const int32_t columns = std::min(plan.grid.tp, kMaxRows);
  out.add(
      "<details><summary>As a table: rounds × tp ranks, shapes and fp32 "
      "bytes of the whole matrices</summary><div class=\"scroll\">"
      "<table><thead><tr><th>round</th>");
  for (int32_t t = 0; t < columns; ++t) out.put("<th>t {}</th>", t);
  out.add("</tr></thead><tbody>\n");
  const size_t listed = std::min(rounds.size(), kMaxListedRounds);
  for (size_t i = 0; i < listed; ++i) {
    out.put("<tr><th>{}</th>", rounds[i].number);
    for (int32_t t = 0; t < columns; ++t)
      put_cell(out, plan, rounds[i].blocks[static_cast<size_t>(t)]);
    out.add("</tr>\n");
  }
  out.add("</tbody></table></div>");
  if (listed < rounds.size()) {
    out.put("<p class=\"note\">The first {} of {} rounds are listed.</p>",
            listed, rounds.size());
  }
  out.add("</details>");
}

// The home of one rank in a part of the plan.
void put_home(Html& out, const PlannedRank& at) {
  const PlanPart& plan = *at.part;
  const std::vector<DrawnRound> rounds =
      rounds_of(plan, in_grid(plan, at.rank));
  if (!at.part->name.empty())
    out.put("<h3>{}</h3><p>{}.</p>", at.part->name,
            counted(static_cast<int64_t>(rounds.size()), "round"));
  if (rounds.empty()) return;
  RoundsDrawing drawing(plan, rounds);
  const std::string svg = drawing.draw();
  put_figure(out, svg, RoundsDrawing(plan, rounds, kNarrowDrawing).draw(),
             drawing.note());
  drawing.put_shapes(out);
  put_table(out, plan, rounds);
}

std::string rounds_text(const PlannedRank& at) {
  if (!at.part->name.empty())
    return "its dense tensors and its experts are cut over ranks of their own, "
           "and their rounds follow each other";
  const PlanPart& plan = *at.part;
  return counted(
      static_cast<int64_t>(rounds_of(plan, in_grid(plan, at.rank)).size()),
      "round");
}

// Teams by shape and size: how many, and what a head and a member have of one.
void put_teams(Html& out, const Plan& plan) {
  if (!may_have_teams(plan)) return;
  out.put("<h3>Teams</h3><p>{}.</p>", describe_teams(plan));
  std::map<std::pair<MatrixShape, size_t>, std::pair<int64_t, TeamStory>> kinds;
  for (const PlanPart& part : plan.parts) {
    for (size_t m = 0; m < part.matrices.size(); ++m) {
      if (part.owners[m].size() < 2) continue;
      const Matrix& matrix = part.matrices[m];
      auto& [count, story] =
          kinds[{{matrix.rows, matrix.cols}, distinct(part.owners[m]).size()}];
      if (count++ == 0) story = *team_of(part, static_cast<int32_t>(m));
    }
  }
  if (kinds.empty()) return;
  out.add(
      "<div class=\"scroll\"><table><thead><tr><th>matrix</th>"
      "<th>teams</th><th>ranks</th><th>of each</th><th>head</th>"
      "<th>member</th><th>head receives in sums</th>"
      "<th>member receives in factors</th></tr></thead><tbody>\n");
  for (const auto& [kind, counted_story] : kinds) {
    const auto& [count, story] = counted_story;
    const TeamMember& head = story.members.front();
    const TeamMember& member = story.members.back();
    const auto work = [&](const TeamMember& who) {
      return ticks_text(plan, static_cast<double>(who.work.value()));
    };
    out.put(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td></tr>\n",
        dims_text({kind.first.rows, kind.first.cols}), grouped(count),
        kind.second, share_text(story, head), work(head), work(member),
        human_bytes(head.inside.sums_received),
        human_bytes(member.inside.factors_received));
  }
  out.add("</tbody></table></div>\n");
}

}  // namespace

void add_micro_groups(Html& out, const PageView& view) {
  begin_section(out, "micro-groups", "Micro-groups");
  const ReportPlan& shown = view.plan();
  const Plan& plan = shown.plan;
  if (plan.matrices.empty()) {
    out.add("<p>No matrices, no micro-groups.</p>");
    end_section(out);
    return;
  }
  const int32_t rank = busiest_rank(shown);
  const std::vector<PlannedRank> places = planned_ranks(plan, rank);
  const bool alone = std::ranges::all_of(
      places, [](const PlannedRank& at) { return at.part->grid.tp == 1; });
  out.put(
      "<p>The home of the busiest rank, {}: {}. {} Blocks are as wide as "
      "their cost, a round as its busiest owner; what is left of it is "
      "waiting.</p>",
      rank_title(plan.mesh, rank), rounds_text(places[0]),
      alone ? "With tp = 1 nothing is exchanged: the home computes alone."
            : "In a round the tp ranks exchange shards, each owner computes "
              "its matrices, and the updates go back.");
  for (const PlannedRank& at : places) put_home(out, at);
  put_teams(out, plan);
  end_section(out);
}

}  // namespace canzona
