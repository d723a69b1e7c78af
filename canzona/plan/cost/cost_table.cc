#include "canzona/plan/cost/cost_table.h"

#include <algorithm>
#include <tuple>

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/shapes/tensor.h"

namespace canzona {
namespace {

using Sample = CostCurve::Sample;

constexpr const char* kFormat = "canzona.cost_table";
constexpr int64_t kVersion = 1;
constexpr size_t kMaxEntries = 100'000;
constexpr int64_t kMaxBatch = 1'000'000;
constexpr double kMaxSeconds = 1e6;
constexpr double kMinBytesPerSecond = 1;
constexpr double kMaxBytesPerSecond = 1e18;

double as_double(Flops flops) { return static_cast<double>(flops.value()); }

std::string read_word(const Json& object, const char* key,
                      const std::vector<std::string>& words,
                      const std::string& where) {
  std::string word = get_string(object, key, where);
  if (std::find(words.begin(), words.end(), word) != words.end()) return word;
  throw UsageError(cat(where, ": ", key, " is ", quoted(word), ", expected ",
                       join(words, " or "), did_you_mean(word, words)));
}

// Returns a member that must be above zero, at least `least`, and below
// `limit`.
double read_amount(const Json& object, const char* key, double least,
                   double limit, const std::string& where) {
  const double number = get_number(object, key, where);
  if (number > 0 && number >= least && number < limit) return number;
  throw UsageError(cat(where, ": ", key, " is ", number, ", expected ",
                       least > 0 ? cat("at least ", least) : "more than 0",
                       " and less than ", limit));
}

std::string read_device(const Json& root, const std::string& where) {
  std::string device = get_string(root, "device", where);
  // The name is printed in reports and stored in plans, so it must suit both.
  if (!device.empty() && printable(device, 200) == device) return device;
  throw UsageError(cat(where, ": device is ", quoted(device),
                       ", expected 1 to 200 printable characters"));
}

std::string read_date(const Json& root, const std::string& where) {
  std::string date = get_string(root, "date", where);
  const std::string pattern = "dddd-dd-dd";
  bool good = date.size() == pattern.size();
  for (size_t i = 0; good && i < pattern.size(); ++i) {
    const bool digit = date[i] >= '0' && date[i] <= '9';
    good = pattern[i] == 'd' ? digit : date[i] == '-';
  }
  if (good) return date;
  throw UsageError(
      cat(where, ": date is ", quoted(date), ", expected YYYY-MM-DD"));
}

const Json& get_array(const Json& object, const char* key,
                      const std::string& where) {
  const Json& array = get_member(object, key, where);
  if (array.is_array() && !array.empty()) return array;
  throw UsageError(
      cat(where, ": ", key, " must be an array with at least one element"));
}

RuleOptions read_options(const Json& group, const std::string& where) {
  RuleOptions options;
  if (!group.contains("options")) return options;
  const Json& object = get_member(group, "options", where);
  const std::string inside = cat(where, ".options");
  if (!object.is_object()) throw UsageError(cat(inside, ": not an object"));
  for (const auto& [name, value] : object.items()) {
    options[name] = get_string(object, name.c_str(), inside);
  }
  return options;
}

// Returns the result of `read`; prefixes the place to its UsageError.
template <class Read>
auto read_at(const std::string& where, const Read& read) {
  try {
    return read();
  } catch (const UsageError& error) {
    throw UsageError(cat(where, ": ", error.what()));
  }
}

// Returns the facts of the rule as it was measured.
std::unique_ptr<RuleFacts> read_rule(const Json& group,
                                     const std::string& where) {
  const std::string rule = get_string(group, "rule", where);
  const RuleOptions options = read_options(group, where);
  return read_at(where, [&] { return make_rule_facts(rule, options); });
}

void require_algorithm(const RuleFacts& rule, MatrixShape shape,
                       const std::string& algorithm, const std::string& where) {
  const std::string runs = rule.algorithm(shape);
  if (runs == algorithm) return;
  throw UsageError(cat(where, ": with the options given, ", rule.name(),
                       " runs ", quoted(runs), " on a ", to_string(shape),
                       " matrix, not ", quoted(algorithm)));
}

// Seconds of one matrix out of a batch.
double read_seconds(const Json& json, const char* key, Flops flops,
                    const std::string& where) {
  if (flops == Flops(0)) {
    throw UsageError(cat(where, ": the rule does no work here, so ", key,
                         " must be absent"));
  }
  const int64_t batch = json.contains("batch")
                            ? get_integer(json, "batch", 1, kMaxBatch, where)
                            : 1;
  return read_amount(json, key, 0, kMaxSeconds, where) /
         static_cast<double>(batch);
}

struct Entry {
  Sample every_step;
  std::optional<Sample> refresh;
};

Entry read_entry(const Json& json, const RuleFacts& rule,
                 const std::string& algorithm, const std::string& where) {
  require_known_keys(
      json, {"rows", "cols", "batch", "seconds", "refresh_seconds"}, where);
  const MatrixShape shape{get_integer(json, "rows", 1, kMaxDim, where),
                          get_integer(json, "cols", 1, kMaxDim, where)};
  require_algorithm(rule, shape, algorithm, where);
  const RuleWork work = read_at(where, [&] { return rule.work(shape); });
  const auto sample = [&](const char* key, Flops flops) {
    return Sample{shape, flops, read_seconds(json, key, flops, where)};
  };
  Entry entry{sample("seconds", work.every_step), std::nullopt};
  if (json.contains("refresh_seconds")) {
    entry.refresh = sample("refresh_seconds", work.refresh);
  }
  return entry;
}

void require_distinct_shapes(const CostCurve& curve, const std::string& where) {
  const auto& samples = curve.samples();
  const auto twice = std::adjacent_find(
      samples.begin(), samples.end(),
      [](const Sample& a, const Sample& b) { return a.shape == b.shape; });
  if (twice == samples.end()) return;
  throw UsageError(cat(where, ": ", to_string(twice->shape), " comes twice"));
}

CostMeasurement read_measurement(const Json& group, const std::string& where) {
  require_known_keys(group, {"rule", "algorithm", "options", "entries"}, where);
  const auto rule = read_rule(group, where);
  const std::string algorithm = get_string(group, "algorithm", where);
  std::vector<Sample> every_step;
  std::vector<Sample> refresh;
  size_t i = 0;
  for (const Json& json : get_array(group, "entries", where)) {
    const std::string inside = cat(where, ".entries[", i++, "]");
    const Entry entry = read_entry(json, *rule, algorithm, inside);
    every_step.push_back(entry.every_step);
    if (entry.refresh) refresh.push_back(*entry.refresh);
  }
  CostMeasurement measured{
      std::string(rule->name()),        algorithm,
      rule->needs_whole_matrix(),       rule->optional_bytes_per_element(),
      CostCurve(std::move(every_step)), CostCurve(std::move(refresh))};
  require_distinct_shapes(measured.every_step, where);
  return measured;
}

// Bounds the number of entries before anything is built from them.
void bound_entries(const Json& groups, const std::string& where) {
  size_t entries = 0;
  for (const Json& group : groups) {
    if (group.is_object() && group.contains("entries")) {
      entries += group["entries"].size();
    }
  }
  if (entries <= kMaxEntries) return;
  throw UsageError(
      cat(where, ": ", entries, " entries, the limit is ", kMaxEntries));
}

std::vector<CostMeasurement> read_measurements(const Json& root,
                                               const std::string& where) {
  const Json& groups = get_array(root, "measurements", where);
  bound_entries(groups, where);
  std::vector<CostMeasurement> all;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string inside = cat(where, ": measurements[", i, "]");
    CostMeasurement next = read_measurement(groups[i], inside);
    for (const CostMeasurement& other : all) {
      if (other.rule != next.rule || other.algorithm != next.algorithm)
        continue;
      throw UsageError(cat(inside, ": ", next.rule, " with ", next.algorithm,
                           " comes twice"));
    }
    all.push_back(std::move(next));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::tie(a.rule, a.algorithm) < std::tie(b.rule, b.algorithm);
  });
  return all;
}

}  // namespace

CostCurve::CostCurve(std::vector<Sample> samples)
    : samples_(std::move(samples)) {
  std::vector<Point> rates;
  for (const Sample& sample : samples_) {
    rates.push_back({sample.flops, sample.seconds / as_double(sample.flops)});
  }
  // The key breaks ties of equal flops, so that the mean below does not depend
  // on the order of entries in the file.
  std::sort(rates.begin(), rates.end(), [](const Point& a, const Point& b) {
    return std::tie(a.flops, a.rate) < std::tie(b.flops, b.rate);
  });
  for (size_t i = 0; i < rates.size();) {
    const size_t first = i;
    double sum = 0;
    for (; i < rates.size() && rates[i].flops == rates[first].flops; ++i) {
      sum += rates[i].rate;
    }
    points_.push_back(
        {rates[first].flops, sum / static_cast<double>(i - first)});
  }
  std::sort(samples_.begin(), samples_.end(),
            [](const Sample& a, const Sample& b) { return a.shape < b.shape; });
}

const Sample* CostCurve::find(MatrixShape shape) const {
  const auto found = std::lower_bound(
      samples_.begin(), samples_.end(), shape,
      [](const Sample& sample, MatrixShape s) { return sample.shape < s; });
  const bool hit = found != samples_.end() && found->shape == shape;
  return hit ? &*found : nullptr;
}

double CostCurve::rate(Flops flops) const {
  const auto above = std::lower_bound(
      points_.begin(), points_.end(), flops,
      [](const Point& point, Flops f) { return point.flops < f; });
  if (above == points_.begin()) return above->rate;
  const auto below = above - 1;
  if (above == points_.end()) return below->rate;
  const double share =
      as_double(flops - below->flops) / as_double(above->flops - below->flops);
  return below->rate + (above->rate - below->rate) * share;
}

double CostCurve::seconds(MatrixShape shape, Flops flops) const {
  CANZONA_CHECK(!empty(), "no samples to tell ", to_string(shape), " from");
  const Sample* sample = find(shape);
  if (!sample) sample = find({shape.cols, shape.rows});
  if (!sample) return rate(flops) * as_double(flops);
  if (sample->flops == flops) return sample->seconds;
  // The sample was measured with other options, e.g. with fewer steps.
  return sample->seconds / as_double(sample->flops) * as_double(flops);
}

CostTable CostTable::parse(std::string_view json, const std::string& where) {
  // The default limit on values suffices: an entry has up to six values, the
  // rest of the file a handful.
  const Json root = parse_json(json, {.what = where, .max_depth = 8});
  require_known_keys(root,
                     {"format", "version", "device", "kind", "precision",
                      "date", "element_wise_bytes_per_second", "measurements"},
                     where);
  read_word(root, "format", {kFormat}, where);
  get_integer(root, "version", kVersion, kVersion, where);
  CostTable table;
  table.device_ = read_device(root, where);
  table.kind_ = read_word(root, "kind", device_names(), where);
  table.precision_ =
      read_word(root, "precision", {"fp16", "bf16", "tf32", "fp32"}, where);
  table.date_ = read_date(root, where);
  if (root.contains("element_wise_bytes_per_second")) {
    table.element_wise_bytes_per_second_ =
        read_amount(root, "element_wise_bytes_per_second", kMinBytesPerSecond,
                    kMaxBytesPerSecond, where);
  }
  table.measurements_ = read_measurements(root, where);
  return table;
}

std::optional<double> CostTable::seconds(const RuleFacts& rule,
                                         MatrixShape shape,
                                         bool refresh) const {
  const std::string algorithm = rule.algorithm(shape);
  for (const CostMeasurement& measured : measurements_) {
    if (measured.rule != rule.name()) continue;
    if (measured.algorithm != algorithm) continue;
    const RuleWork work = rule.work(shape);
    const Flops flops = refresh ? work.refresh : work.every_step;
    if (flops == Flops(0)) return 0;
    const CostCurve& curve = refresh ? measured.refresh : measured.every_step;
    if (curve.empty()) return std::nullopt;
    const int64_t more =
        rule.optional_bytes_per_element() - measured.optional_bytes;
    if (refresh || more <= 0 || !element_wise_bytes_per_second_)
      return curve.seconds(shape, flops);
    return curve.seconds(shape, flops) + static_cast<double>(more) *
                                             static_cast<double>(shape.rows) *
                                             static_cast<double>(shape.cols) /
                                             *element_wise_bytes_per_second_;
  }
  return std::nullopt;
}

std::optional<double> CostTable::mean_seconds_per_flop(bool refresh) const {
  double seconds = 0;
  double flops = 0;
  for (const CostMeasurement& measured : measurements_) {
    if (!measured.needs_whole_matrix) continue;
    const CostCurve& curve = refresh ? measured.refresh : measured.every_step;
    for (const Sample& sample : curve.samples()) {
      seconds += sample.seconds;
      flops += as_double(sample.flops);
    }
  }
  if (flops == 0) return std::nullopt;
  return seconds / flops;
}

}  // namespace canzona
