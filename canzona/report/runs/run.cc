#include "canzona/report/runs/run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/report/train_lines.h"

namespace canzona::report {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxMetricsBytes = int64_t{1} << 30;
constexpr int64_t kMaxSummaryBytes = int64_t{256} << 20;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

TrainingRun read_run(const std::string& folder) {
  const fs::path root(folder);
  if (!is_folder(root))
    throw UsageError(cat("run ", quoted(folder),
                         is_there(root)
                             ? ": it is a file; expected the folder of a run"
                             : ": no such folder"));
  TrainingRun run;
  run.folder = folder;
  const fs::path metrics = root / "metrics.jsonl";
  const fs::path summary = root / "summary.json";
  if (!is_there(metrics) && !is_there(summary))
    throw UsageError(cat(
        "run ", quoted(folder),
        ": not a run: expected metrics.jsonl or summary.json, found neither"));
  if (is_there(metrics))
    run.steps = read_metrics(
        read_file(metrics, kMaxMetricsBytes, "the metrics"), metrics);
  if (is_there(summary))
    run.summary = read_summary(
        read_file(summary, kMaxSummaryBytes, "the summary"), summary);
  return run;
}

// Returns the last `count` components of a path.
std::string tail_of(const std::string& folder, size_t count) {
  std::vector<std::string> names;
  for (const fs::path& part : fs::path(folder).lexically_normal())
    if (!part.empty() && part != "/" && part != ".") names.push_back(part);
  if (names.empty()) return folder;
  const size_t first = names.size() - std::min(count, names.size());
  names.erase(names.begin(), names.begin() + static_cast<ptrdiff_t>(first));
  return join(names, "/");
}

bool all_differ(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) == names.end();
}

// Gives every run the shortest unique name; numbers those that stay alike.
void give_names(std::vector<TrainingRun>& runs) {
  constexpr size_t kMaxDepth = 8;
  std::vector<std::string> names(runs.size());
  for (size_t depth = 1; depth <= kMaxDepth; ++depth) {
    for (size_t i = 0; i < runs.size(); ++i)
      names[i] = tail_of(runs[i].folder, depth);
    if (all_differ(names)) break;
  }
  const bool differ = all_differ(names);
  for (size_t i = 0; i < runs.size(); ++i)
    runs[i].name = differ ? names[i] : cat(names[i], " #", i + 1);
}

double last_finite(const std::vector<StepMetrics>& steps,
                   double (*value)(const StepMetrics&)) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step)
    if (std::isfinite(value(*step))) return value(*step);
  return kNone;
}

}  // namespace

int64_t TrainingRun::num_steps() const {
  if (has_ended()) return summary->steps;
  return steps.empty() ? 0 : steps.back().step;
}

int64_t TrainingRun::tokens() const {
  if (has_ended()) return summary->tokens;
  return steps.empty() ? 0 : steps.back().tokens;
}

double TrainingRun::seconds() const {
  if (has_ended()) return summary->seconds;
  return steps.empty() ? 0 : steps.back().seconds;
}

double TrainingRun::final_loss() const {
  if (has_ended()) return summary->final_loss;
  return last_finite(steps, [](const StepMetrics& m) { return m.loss; });
}

double TrainingRun::eval_loss() const {
  if (summary && std::isfinite(summary->eval_loss)) return summary->eval_loss;
  return last_finite(
      steps, [](const StepMetrics& m) { return m.eval_loss.value_or(kNone); });
}

std::string TrainingRun::remark() const {
  if (!summary) return "did not finish: it is still running, or was killed";
  const RunSummary& s = *summary;
  if (!s.has_ended())
    return cat("did not finish: process ", s.pid, " on ",
               printable(s.environment.host, 60), ", started ",
               printable(s.started, 30), ", is still running or was killed");
  if (s.has_ended_by_spike())
    return cat("diverged: ",
               spike_text(s.spike_step, s.spike_loss, s.spike_over));
  if (s.state == "diverged")
    return "diverged: too many steps in a row were skipped";
  return s.state == "stopped" ? "interrupted" : "";
}

int64_t TrainingRun::skipped_steps() const {
  return std::ranges::count_if(steps, &StepMetrics::skipped);
}

double TrainingRun::mfu() const {
  if (has_ended()) return summary->mfu();
  return last_finite(
      steps, [](const StepMetrics& m) { return m.mfu.value_or(kNone); });
}

std::string TrainingRun::digest() const {
  return summary ? summary->digest : "";
}

double TrainingRun::tokens_per_second() const {
  return seconds() > 0 ? static_cast<double>(tokens()) / seconds() : 0;
}

int64_t TrainingRun::memory_bytes() const {
  int64_t most = 0;
  if (summary)
    for (const RankSummary& rank : summary->per_rank)
      most = std::max(most, rank.reserved_bytes);
  for (const StepMetrics& step : steps)
    most = std::max(most, step.memory_bytes);
  return most;
}

std::vector<TrainingRun> read_runs(const std::vector<std::string>& folders) {
  if (folders.size() > kMaxRuns)
    throw UsageError(cat(folders.size(),
                         " runs are too many for a page, expected at most ",
                         kMaxRuns));
  std::vector<TrainingRun> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder));
  give_names(runs);
  return runs;
}

const StepMetrics* first_below(const TrainingRun& run, double loss) {
  for (const StepMetrics& step : run.steps)
    if (step.eval_loss && *step.eval_loss <= loss) return &step;
  return nullptr;
}

size_t baseline_of(const std::vector<TrainingRun>& runs,
                   const std::string& wanted) {
  if (wanted.empty()) return 0;
  std::vector<std::string> names;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].name == wanted || runs[i].folder == wanted ||
        tail_of(runs[i].folder, 1) == tail_of(wanted, 1))
      return i;
    names.push_back(runs[i].name);
  }
  throw UsageError(
      cat("baseline ", quoted(wanted), " is not one of the given runs: ",
          printable(join(names, ", ")), did_you_mean(wanted, names)));
}

namespace {

double ratio_of(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

std::optional<Reached> reached_by(const TrainingRun& run,
                                  const TrainingRun& base, double target) {
  const StepMetrics* step = first_below(run, target);
  const StepMetrics* own = first_below(base, target);
  if (!std::isfinite(target) || step == nullptr) return std::nullopt;
  Reached out{step->step, step->tokens, step->seconds};
  if (own == nullptr) return out;
  out.steps_ratio =
      ratio_of(static_cast<double>(step->step), static_cast<double>(own->step));
  out.tokens_ratio = ratio_of(static_cast<double>(step->tokens),
                              static_cast<double>(own->tokens));
  out.seconds_ratio = ratio_of(step->seconds, own->seconds);
  return out;
}

}  // namespace

ComparedRuns compare_runs(const std::vector<TrainingRun>& runs,
                          size_t baseline) {
  if (runs.empty()) throw UsageError("report: there is no run to show");
  ComparedRuns out{runs, baseline, runs[baseline].eval_loss(), {}, {}};
  std::map<std::string, std::string> letters;
  for (const TrainingRun& run : runs) {
    out.reached.push_back(reached_by(run, runs[baseline], out.target));
    if (run.digest().empty()) {
      out.letters.emplace_back();
      continue;
    }
    const char next = static_cast<char>('A' + letters.size());
    out.letters.push_back(
        letters.emplace(run.digest(), std::string(1, next)).first->second);
  }
  return out;
}

namespace {

constexpr size_t kMaxFacts = 2000;
constexpr size_t kMaxText = 400;

void flatten(const Json& value, const std::string& name, Facts& facts) {
  if (facts.size() >= kMaxFacts) return;
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, member] : value.items())
      flatten(member, name.empty() ? key : name + "." + key, facts);
    return;
  }
  const std::string text =
      value.is_string()
          ? value.get<std::string>()
          : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  facts.emplace_back(printable(name, kMaxText), printable(text, kMaxText));
}

// Returns the bytes of the rank that has most; "" if they are not known.
std::string most_bytes(const RunSummary& summary, int64_t RankSummary::*field) {
  int64_t most = -1;
  for (const RankSummary& rank : summary.per_rank)
    most = std::max(most, rank.*field);
  return most < 0 ? "" : human_bytes(most);
}

}  // namespace

Facts configuration_of(const TrainingRun& run) {
  Facts facts;
  if (run.summary && !run.summary->config.empty())
    flatten(run.summary->config, "", facts);
  return facts;
}

Facts environment_of(const TrainingRun& run) {
  if (!run.summary) return {};
  const RunSummary& s = *run.summary;
  const RunEnvironment& e = s.environment;
  Facts facts = {
      {"model", s.model},
      {"parameters",
       s.parameters > 0 ? human_count(static_cast<double>(s.parameters)) : ""},
      {"mesh", s.mesh},
      {"ranks", cat(s.ranks)},
      {"transport", s.transport},
      {"rule", s.rule},
      {"precision",
       s.precision.empty() ? "" : cat(s.precision, " (", s.precision_why, ")")},
      {"strategy", s.strategy},
      {"zero", s.zero},
      {"overlap", s.overlap},
      {"sent in a step, inside nodes",
       most_bytes(s, &RankSummary::fast_bytes_per_step)},
      {"sent in a step, between nodes",
       most_bytes(s, &RankSummary::slow_bytes_per_step)},
      {"starts", s.starts > 1
                     ? cat(s.starts, ", the last one after step ", s.start_step)
                     : ""},
      {"last checkpoint", s.saved_step < 0 ? "" : cat("step ", s.saved_step)},
      {"data", s.data},
      {"data digest", s.data_digest},
      {"plan digest", s.plan_digest},
      {"parameters digest", s.digest},
      {"states digest", s.state_digest},
      {"host", e.host},
      {"cpu", e.cpu},
      {"cores", e.cores > 0 ? cat(e.cores) : ""},
      {"BLAS", e.blas},
      {"version", e.version},
      {"commit", e.commit},
  };
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  for (auto& [name, value] : facts) value = printable(value, kMaxText);
  return facts;
}

std::vector<FactRow> side_by_side(const std::vector<Facts>& facts) {
  std::vector<FactRow> rows;
  std::map<std::string, size_t> place;
  for (size_t run = 0; run < facts.size(); ++run)
    for (const auto& [name, value] : facts[run]) {
      const auto [at, is_new] = place.emplace(name, rows.size());
      if (is_new)
        rows.push_back({name, std::vector<std::string>(facts.size()), false});
      rows[at->second].values[run] = value;
    }
  for (FactRow& row : rows)
    row.differs = std::any_of(
        row.values.begin(), row.values.end(),
        [&](const std::string& value) { return value != row.values[0]; });
  return rows;
}

namespace {

constexpr size_t kMaxSmoothed = 2000;
// Keeps differences and squares of the drawn values finite.
constexpr double kLargest = 1e100;

// Fits a straight line to weighted points and evaluates it at one place.
class LineFit {
 public:
  explicit LineFit(double center) : center_(center) {}

  void add(double x, double y, double weight) {
    const double dx = x - center_;
    w_ += weight;
    wx_ += weight * dx;
    wxx_ += weight * dx * dx;
    wy_ += weight * y;
    wxy_ += weight * dx * y;
  }
  double at_center() const {
    const double spread = w_ * wxx_ - wx_ * wx_;
    if (!(spread > 1e-12 * w_ * wxx_)) return wy_ / w_;
    return (wxx_ * wy_ - wx_ * wxy_) / spread;
  }

 private:
  double center_;
  double w_ = 0, wx_ = 0, wxx_ = 0, wy_ = 0, wxy_ = 0;
};

// Calls `use(first, last)` for at most `most` consecutive runs of points.
template <class Use>
void for_each_run(const Points& points, size_t most, const Use& use) {
  const size_t length = (points.size() + most - 1) / most;
  for (size_t first = 0; first < points.size(); first += length) {
    const size_t end = std::min(first + length, points.size());
    use(points.begin() + static_cast<ptrdiff_t>(first),
        points.begin() + static_cast<ptrdiff_t>(end));
  }
}

}  // namespace

Points points_of(const TrainingRun& run, Figure figure) {
  Points points;
  for (const StepMetrics& step : run.steps) {
    const double value = figure(step);
    if (std::fabs(value) < kLargest && std::fabs(step.seconds) < kLargest)
      points.push_back({static_cast<double>(step.step),
                        static_cast<double>(step.tokens), step.seconds, value});
  }
  return points;
}

double loss_of(const StepMetrics& step) { return step.loss; }
double eval_loss_of(const StepMetrics& step) {
  return step.eval_loss.value_or(std::numeric_limits<double>::quiet_NaN());
}

Points smoothed(const Points& all) {
  const Points points = thinned_mean(all, kMaxSmoothed);
  const auto count = static_cast<ptrdiff_t>(points.size());
  const ptrdiff_t reach =
      std::min(std::max<ptrdiff_t>(2, count / 40), (count - 1) / 2);
  Points out;
  for (ptrdiff_t i = 0; i < count; ++i) {
    // Points at the ends get as many neighbours as the others; with fewer, the
    // noise would show there.
    const ptrdiff_t first =
        std::clamp<ptrdiff_t>(i - reach, 0, count - 1 - 2 * reach);
    const ptrdiff_t last = first + 2 * reach;
    const ptrdiff_t furthest = std::max(i - first, last - i);
    LineFit fit(static_cast<double>(i));
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (ptrdiff_t j = first; j <= last; ++j) {
      const double y = points[static_cast<size_t>(j)].value;
      low = std::min(low, y);
      high = std::max(high, y);
      fit.add(static_cast<double>(j), y,
              static_cast<double>(furthest + 1 - std::abs(i - j)));
    }
    // At the ends of a bend the fitted line may leave the measured range.
    out.push_back(points[static_cast<size_t>(i)]);
    out.back().value = std::clamp(fit.at_center(), low, high);
  }
  return out;
}

Points thinned_peaks(const Points& points, size_t most) {
  if (points.size() <= most) return points;
  Points out;
  for_each_run(points, most / 2, [&](auto first, auto end) {
    const auto [low, high] = std::minmax_element(
        first, end,
        [](const Point& a, const Point& b) { return a.value < b.value; });
    out.push_back(low < high ? *low : *high);
    if (low != high) out.push_back(low < high ? *high : *low);
  });
  return out;
}

Points thinned_mean(const Points& points, size_t most) {
  if (points.size() <= most) return points;
  Points out;
  for_each_run(points, most, [&](auto first, auto end) {
    Point mean;
    const auto count = static_cast<double>(end - first);
    for (auto point = first; point != end; ++point) {
      mean.steps += point->steps / count;
      mean.tokens += point->tokens / count;
      mean.seconds += point->seconds / count;
      mean.value += point->value / count;
    }
    out.push_back(mean);
  });
  return out;
}

}  // namespace canzona::report
