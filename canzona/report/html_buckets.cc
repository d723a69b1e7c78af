// Buckets cut by owner: one row per bucket, its runs coloured by home.

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/plan/mesh.h"
#include "canzona/report/html.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/numbers.h"
#include "canzona/report/places.h"

namespace canzona {
namespace {

// The margins before and after the rows of a drawing.
struct Margins {
  explicit Margins(double drawing_width)
      : narrow(drawing_width < kDrawingWidth),
        width(drawing_width),
        left(narrow ? 84 : 112),
        right(drawing_width - (narrow ? 48 : 150)) {}

  bool narrow;
  double width;
  double left;
  double right;
};

// Runs that a drawing may have, so that the page stays light.
constexpr size_t kMaxRuns = 10'000;
// Neighbouring runs narrower than this are drawn as one.
constexpr double kNarrowest = 2;
// As many homes get a colour each; more alternate between two shades.
constexpr int32_t kMaxColours = 6;

// Consecutive tensors of a bucket with one home.
struct HomeRun {
  int32_t first_home = kEveryHome;
  int32_t last_home = kEveryHome;
  int32_t tensors = 0;
  int64_t elements = 0;
};

std::vector<HomeRun> runs_of(const PlanPart& plan, const Bucket& bucket) {
  std::vector<HomeRun> runs;
  for (int32_t i = 0; i < bucket.num_matrix_tensors; ++i) {
    const int32_t tensor = bucket.tensors[static_cast<size_t>(i)];
    const int32_t home = home_of(plan, tensor);
    if (runs.empty() || runs.back().first_home != home)
      runs.push_back({home, home, 0, 0});
    ++runs.back().tensors;
    runs.back().elements += shard_elements(
        plan.mesh, plan.model.tensors[static_cast<size_t>(tensor)]);
  }
  return runs;
}

int64_t adamw_elements(const PlanPart& plan, const Bucket& bucket) {
  int64_t sum = 0;
  for (size_t i = static_cast<size_t>(bucket.num_matrix_tensors);
       i < bucket.tensors.size(); ++i) {
    sum += shard_elements(
        plan.mesh, plan.model.tensors[static_cast<size_t>(bucket.tensors[i])]);
  }
  return sum;
}

int64_t matrix_elements(const std::vector<HomeRun>& runs) {
  int64_t sum = 0;
  for (const HomeRun& run : runs) sum += run.elements;
  return sum;
}

// Joins runs that would be too narrow to see.
std::vector<HomeRun> visible_runs(const std::vector<HomeRun>& runs,
                                  double scale) {
  std::vector<HomeRun> out;
  for (const HomeRun& run : runs) {
    if (!out.empty() &&
        static_cast<double>(out.back().elements) * scale < kNarrowest) {
      out.back().last_home = run.last_home;
      out.back().tensors += run.tensors;
      out.back().elements += run.elements;
    } else {
      out.push_back(run);
    }
  }
  return out;
}

std::string home_text(const HomeRun& run) {
  if (run.first_home == kEveryHome) return "every home";
  if (run.first_home == run.last_home) return cat("home ", run.first_home);
  return cat("homes ", run.first_home, " … ", run.last_home);
}

// Buckets that are drawn: all, unless homes and buckets are both many.
size_t rows_to_draw(const PlanPart& plan) {
  const Margins margins(kDrawingWidth);
  const double most_visible = (margins.right - margins.left) / kNarrowest;
  const auto runs =
      static_cast<size_t>(std::min<double>(plan.grid.homes(), most_visible));
  return std::min(plan.buckets.size(), kMaxRuns / runs);
}

class BucketsDrawing {
 public:
  BucketsDrawing(const PlanPart& plan, double width)
      : plan_(plan), at_(width), rows_(rows_to_draw(plan)) {
    for (size_t b = 0; b < rows_; ++b) {
      const Bucket& bucket = plan.buckets[b];
      runs_.push_back(runs_of(plan, bucket));
      adamw_.push_back(adamw_elements(plan, bucket));
      widest_ = std::max(widest_, matrix_elements(runs_[b]) + adamw_[b]);
    }
    scale_ =
        widest_ > 0 ? (at_.right - at_.left) / static_cast<double>(widest_) : 0;
    row_height_ = rows_ <= 24 ? 22 : rows_ <= 48 ? 13 : 9;
  }

  std::string draw() {
    Svg svg(at_.width, row_height_ * static_cast<double>(rows_) + 22,
            cat("Buckets of ", plan_.options.strategy, " cut by home"));
    head(svg);
    for (size_t b = 0; b < rows_; ++b) draw_row(svg, b);
    return svg.take();
  }

 private:
  void head(Svg& svg) const {
    const std::string first = cat(plan_.mesh.pp > 1 ? "stage · " : "",
                                  plan_.mesh.ep > 1 ? "ep · " : "", "bucket");
    if (at_.narrow) {
      svg.text(0, 12, "start dim", first);
      svg.text(at_.width, 12, "end dim", "widest run / even share");
      return;
    }
    svg.text(at_.left - 8, 12, "end dim", first);
    svg.text(at_.left, 12, "start dim",
             "elements of one TP plane, in layout order");
    svg.text(at_.right + 8, 12, "start dim", "widest run / even share");
  }

  void draw_row(Svg& svg, size_t b) const {
    const double y = 18 + row_height_ * static_cast<double>(b);
    const double height = row_height_ - (row_height_ > 10 ? 3 : 1);
    double x = at_.left;
    int32_t number = 0;
    for (const HomeRun& run : visible_runs(runs_[b], scale_)) {
      const double width = static_cast<double>(run.elements) * scale_;
      svg.rect({x, y, width, height}, colour(run, number++), title(run, b),
               query(run, b));
      x += width;
    }
    if (adamw_[b] > 0) {
      svg.rect({x, y, static_cast<double>(adamw_[b]) * scale_, height}, "adamw",
               cat("bucket ", number_of(b), ": AdamW tensors, cut anywhere, ",
                   bytes_text(adamw_[b])),
               cat("bucket:", number_of(b), " adamw"));
    }
    label(svg, b, y + height - (height > 12 ? 5 : 1));
  }

  std::string colour(const HomeRun& run, int32_t number) const {
    if (run.first_home == kEveryHome) return "run every";
    if (plan_.grid.homes() <= kMaxColours) return cat("run s", run.first_home);
    return number % 2 == 0 ? "run shade0" : "run shade1";
  }

  std::string title(const HomeRun& run, size_t b) const {
    return cat("bucket ", number_of(b), ": ", home_text(run), ", ",
               counted(run.tensors, "tensor"), ", ", bytes_text(run.elements));
  }

  std::string query(const HomeRun& run, size_t b) const {
    if (run.first_home != run.last_home || run.first_home == kEveryHome)
      return cat("bucket:", number_of(b));
    return cat("bucket:", number_of(b), " home:", run.first_home);
  }

  // Buckets are counted over all parts.
  size_t number_of(size_t b) const {
    return static_cast<size_t>(plan_.first_bucket) + b;
  }

  // Elements of one plane as bytes of gradient on the wire.
  std::string bytes_text(int64_t elements) const {
    return human_bytes(elements * kBytesPerFp32) + " fp32";
  }

  void label(Svg& svg, size_t b, double y) const {
    const Buffer& buffer =
        plan_.buffers[static_cast<size_t>(plan_.buckets[b].buffer)];
    if (row_height_ < 10 && b % 4 != 0) return;
    std::string name = std::to_string(number_of(b));
    if (plan_.mesh.ep > 1) {
      name =
          cat(buffer.ep < 0 ? "all" : std::to_string(buffer.ep), " · ", name);
    }
    if (plan_.mesh.pp > 1) name = cat(buffer.stage, " · ", name);
    svg.text(at_.left - 8, y, "end", name);
    if (plan_.traffic == Traffic::kAllReduce || runs_[b].empty()) return;
    svg.text(at_.right + 8, y, "start", ratio_text(widest_over_even(b)));
  }

  double widest_over_even(size_t b) const {
    const Buffer& buffer =
        plan_.buffers[static_cast<size_t>(plan_.buckets[b].buffer)];
    std::vector<int64_t> per_home(static_cast<size_t>(plan_.grid.homes()));
    for (const HomeRun& run : runs_[b]) {
      if (run.first_home == kEveryHome) continue;
      per_home[static_cast<size_t>(run.first_home)] += run.elements;
    }
    const int64_t most = *std::max_element(per_home.begin(), per_home.end());
    const int64_t all = matrix_elements(runs_[b]);
    return all > 0 ? static_cast<double>(most) * buffer.num_homes /
                         static_cast<double>(all)
                   : 0;
  }

  const PlanPart& plan_;
  Margins at_;
  size_t rows_;
  double row_height_ = 22;
  int64_t widest_ = 0;
  double scale_ = 0;
  std::vector<std::vector<HomeRun>> runs_;
  std::vector<int64_t> adamw_;
};

void put_bucket_legend(Html& out, const PlanPart& plan) {
  std::vector<LegendEntry> entries;
  if (plan.grid.homes() <= kMaxColours) {
    for (int32_t h = 0; h < plan.grid.homes(); ++h)
      entries.push_back({cat("s", h), cat("home ", h)});
  } else {
    entries.push_back({"shade0", "a home's run"});
    entries.push_back({"shade1", "the next home's run"});
  }
  if (plan.traffic == Traffic::kAllReduce)
    entries.push_back({"every", "every home repeats it"});
  entries.push_back({"adamw", "AdamW tensors, cut anywhere"});
  put_legend(out, entries);
}

// Says whose homes they are, if it does not follow from the mesh.
std::string homes_note(const PlanPart& plan) {
  if (plan.ep == 1 || plan.mesh.pp > 1) return "";
  if (plan.grid.homes() > kMaxColours || plan.model.tensors.empty()) return "";
  std::string text;
  for (int32_t h = 0; h < plan.grid.homes(); ++h)
    text += cat("Home ", h, ": ", ranks_text(ranks_of_home(plan, 0, h)), ". ");
  return text;
}

std::string note_of(const PlanPart& plan) {
  const size_t drawn = rows_to_draw(plan);
  const std::string homes = homes_note(plan);
  if (drawn == plan.buckets.size()) return homes;
  return cat(homes, "The first ", grouped(static_cast<int64_t>(drawn)), " of ",
             grouped(static_cast<int64_t>(plan.buckets.size())),
             " buckets are drawn.");
}

void put_buckets(Html& out, const PlanPart& plan) {
  if (plan.buckets.empty()) {
    out.add("<p>No buckets.</p>");
    return;
  }
  put_drawing(
      out, [&](double width) { return BucketsDrawing(plan, width).draw(); },
      note_of(plan));
}

// The parts of the busiest rank: others of experts are cut alike.
void put_parts(Html& out, const ReportPlan& shown, bool is_one_of_two) {
  const std::string& strategy = shown.plan.options.strategy;
  for (const PlannedRank& at : planned_ranks(shown.plan, busiest_rank(shown))) {
    const PlanPart& part = *at.part;
    if (!part.name.empty())
      out.put("<h3>{}: {}{}</h3>", strategy, part.name,
              part.ep > 1 ? ", where the busiest rank is" : "");
    else if (is_one_of_two)
      out.put("<h3>{}</h3>", strategy);
    put_buckets(out, part);
    put_bucket_legend(out, part);
  }
}

}  // namespace

void add_buckets(Html& out, const PageView& view) {
  begin_section(out, "buckets", "Buckets cut by owner");
  out.add(
      "<p>A bucket is reduced as one message during backward. Each home "
      "keeps one run of it; the longest run decides how long the "
      "reduce-scatter takes.</p>");
  for (const ReportPlan* shown : view.pair())
    put_parts(out, *shown, view.two());
  end_section(out);
}

}  // namespace canzona
