#include "canzona/trace/run_summary.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"

namespace canzona::trace {
namespace {

constexpr int64_t kMaxLineBytes = 1 << 16;
constexpr int64_t kMaxLines = 4'000'000;
constexpr int64_t kMaxStepInteger = std::numeric_limits<int64_t>::max();

// Writers put null where a number is not finite.
double number_or_nan(const Json& object, const char* key,
                     std::string_view where) {
  if (get_member(object, key, where).is_null())
    return std::numeric_limits<double>::quiet_NaN();
  return get_number(object, key, where);
}

// Reads members that old files do not have.
template <class Read, class Value>
Value if_there(const Json& object, const char* key, Value otherwise,
               const Read& read) {
  return object.contains(key) ? read() : otherwise;
}

StepMetrics read_line(std::string_view line, const std::string& where) {
  const Json object = parse_json(line, {.what = where,
                                        .max_bytes = kMaxLineBytes,
                                        .max_depth = 8,
                                        .max_values = 1000});
  StepMetrics m;
  m.step = get_integer(object, "step", 1, kMaxStepInteger, where);
  m.loss = number_or_nan(object, "loss", where);
  m.grad_norm = number_or_nan(object, "grad_norm", where);
  m.lr = get_number(object, "lr", where);
  m.tokens_per_second = number_or_nan(object, "tokens_per_second", where);
  m.optimizer_ms = get_number(object, "optimizer_ms", where);
  m.comm_ms = get_number(object, "comm_ms", where);
  m.hidden_fraction = get_number(object, "hidden_fraction", where);
  m.memory_bytes =
      get_integer(object, "memory_bytes", 0, kMaxStepInteger, where);
  m.tokens = if_there(object, "tokens", int64_t{0}, [&] {
    return get_integer(object, "tokens", 0, kMaxStepInteger, where);
  });
  m.seconds = if_there(object, "seconds", 0.0,
                       [&] { return get_number(object, "seconds", where); });
  m.skipped = if_there(object, "skipped", false,
                       [&] { return get_bool(object, "skipped", where); });
  m.nonfinite_tensor = if_there(object, "nonfinite_tensor", std::string(), [&] {
    return get_string(object, "nonfinite_tensor", where);
  });
  m.nonfinite_rank = if_there(object, "nonfinite_rank", int64_t{-1}, [&] {
    return get_integer(object, "nonfinite_rank", 0, kMaxStepInteger, where);
  });
  if (object.contains("spike_over"))
    m.spike_over = get_number(object, "spike_over", where);
  if (object.contains("largest_logit"))
    m.largest_logit = get_number(object, "largest_logit", where);
  if (object.contains("clipped_heads"))
    m.clipped_heads =
        get_integer(object, "clipped_heads", 0, kMaxStepInteger, where);
  if (object.contains("flops_per_second"))
    m.flops_per_second = get_number(object, "flops_per_second", where);
  if (object.contains("mfu")) m.mfu = number_or_nan(object, "mfu", where);
  if (object.contains("eval_loss"))
    m.eval_loss = number_or_nan(object, "eval_loss", where);
  return m;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

void require_later(const std::vector<StepMetrics>& steps,
                   const StepMetrics& next, const std::string& where) {
  if (steps.empty() || next.step > steps.back().step) return;
  throw UsageError(cat(where, ": step ", next.step, " comes after step ",
                       steps.back().step));
}

}  // namespace

std::string json_line(const StepMetrics& metrics) {
  JsonWriter out;
  out.begin_object()
      .field("step", metrics.step)
      .field("loss", metrics.loss)
      .field("grad_norm", metrics.grad_norm)
      .field("lr", metrics.lr)
      .field("tokens_per_second", metrics.tokens_per_second)
      .field("optimizer_ms", metrics.optimizer_ms)
      .field("comm_ms", metrics.comm_ms)
      .field("hidden_fraction", metrics.hidden_fraction)
      .field("memory_bytes", metrics.memory_bytes)
      .field("tokens", metrics.tokens)
      .field("seconds", metrics.seconds);
  if (metrics.flops_per_second)
    out.field("flops_per_second", *metrics.flops_per_second);
  if (metrics.mfu) out.field("mfu", *metrics.mfu);
  if (metrics.skipped) {
    out.field("skipped", true);
    out.field("nonfinite_tensor", metrics.nonfinite_tensor);
    if (metrics.nonfinite_rank >= 0)
      out.field("nonfinite_rank", metrics.nonfinite_rank);
  }
  if (metrics.spike_over) out.field("spike_over", *metrics.spike_over);
  if (metrics.largest_logit) out.field("largest_logit", *metrics.largest_logit);
  if (metrics.clipped_heads) out.field("clipped_heads", *metrics.clipped_heads);
  std::string line = out.end_object().take();
  if (!metrics.eval_loss) return line;
  line.pop_back();
  return line + evaluation_tail(*metrics.eval_loss);
}

std::string evaluation_tail(double eval_loss) {
  JsonWriter out;
  out.begin_object()
      .field("eval_loss", eval_loss)
      .field("perplexity", perplexity_of(eval_loss));
  std::string tail = out.end_object().take();
  tail.front() = ',';
  return tail;
}

std::vector<StepMetrics> read_metrics(std::string_view text,
                                      const std::string& file) {
  std::vector<StepMetrics> steps;
  const std::string name = printable(file);
  for (int64_t number = 1; !text.empty(); ++number) {
    if (number > kMaxLines)
      throw UsageError(cat(name, ": more than ", kMaxLines, " lines"));
    const size_t end = text.find('\n');
    const bool whole = end != std::string_view::npos;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(whole ? end + 1 : text.size());
    if (is_blank(line)) continue;
    const std::string where = cat(name, " line ", number);
    try {
      const StepMetrics next = read_line(line, where);
      require_later(steps, next, where);
      steps.push_back(next);
    } catch (const UsageError&) {
      // A run that was killed may have cut its last line.
      if (whole) throw;
    }
  }
  return steps;
}

namespace {

constexpr int64_t kMaxInteger = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kMaxBytes = 256 << 20;

// A name in JSON and its member in the struct.
template <class Struct, class Value>
struct Named {
  const char* name;
  Value Struct::*field;
};

constexpr Named<RankSummary, double> kRankTimes[] = {
    {"forward_backward_seconds", &RankSummary::forward_backward_seconds},
    {"optimizer_seconds", &RankSummary::optimizer_seconds},
    {"waited_seconds", &RankSummary::waited_seconds},
    {"comm_busy_seconds", &RankSummary::comm_busy_seconds},
    {"other_seconds", &RankSummary::other_seconds},
    {"load", &RankSummary::load},
    {"late_seconds_per_step", &RankSummary::late_seconds_per_step},
};
constexpr Named<RankSummary, int64_t> kRankCounts[] = {
    {"predicted_bytes", &RankSummary::predicted_bytes},
    {"reserved_bytes", &RankSummary::reserved_bytes},
    {"owned_matrices", &RankSummary::owned_matrices},
    {"fast_bytes_per_step", &RankSummary::fast_bytes_per_step},
    {"slow_bytes_per_step", &RankSummary::slow_bytes_per_step},
};
constexpr Named<RunSummary, std::string> kTexts[] = {
    {"state_digest", &RunSummary::state_digest},
    {"weights_sha256", &RunSummary::weights_sha256},
    {"model", &RunSummary::model},
    {"mesh", &RunSummary::mesh},
    {"transport", &RunSummary::transport},
    {"rule", &RunSummary::rule},
    {"precision", &RunSummary::precision},
    {"precision_why", &RunSummary::precision_why},
    {"strategy", &RunSummary::strategy},
    {"plan_digest", &RunSummary::plan_digest},
    {"zero", &RunSummary::zero},
    {"overlap", &RunSummary::overlap},
    {"started", &RunSummary::started},
    {"nonfinite_tensor", &RunSummary::nonfinite_tensor},
    {"save_failure", &RunSummary::save_failure},
};
constexpr Named<RunSummary, int64_t> kCounts[] = {
    {"pid", &RunSummary::pid},
    {"skipped_steps", &RunSummary::skipped_steps},
    {"nonfinite_rank", &RunSummary::nonfinite_rank},
    {"spikes", &RunSummary::spikes},
    {"spike_step", &RunSummary::spike_step},
    {"eval_sequences", &RunSummary::eval_sequences},
    {"starts", &RunSummary::starts},
    {"start_step", &RunSummary::start_step},
    {"saves", &RunSummary::saves},
    {"saved_step", &RunSummary::saved_step},
    {"late_rank", &RunSummary::late_rank},
    {"parameters", &RunSummary::parameters},
};
constexpr Named<RunSummary, double> kRates[] = {
    {"predicted_step_seconds", &RunSummary::predicted_step_seconds},
    {"flops_per_token", &RunSummary::flops_per_token},
    {"product_flops_per_second", &RunSummary::product_flops_per_second},
    {"save_pause_seconds", &RunSummary::save_pause_seconds},
    {"spike_loss", &RunSummary::spike_loss},
    {"spike_over", &RunSummary::spike_over},
    {"late_seconds_per_step", &RunSummary::late_seconds_per_step},
};
constexpr Named<RunEnvironment, std::string> kEnvironment[] = {
    {"host", &RunEnvironment::host},       {"cpu", &RunEnvironment::cpu},
    {"blas", &RunEnvironment::blas},       {"gpu", &RunEnvironment::gpu},
    {"version", &RunEnvironment::version}, {"commit", &RunEnvironment::commit},
};

void write_value(JsonWriter& out, const Json& value) {
  if (value.is_object()) {
    out.begin_object();
    for (const auto& [key, member] : value.items()) {
      out.member(key);
      write_value(out, member);
    }
    out.end_object();
  } else if (value.is_array()) {
    out.begin_array();
    for (const Json& item : value) write_value(out, item);
    out.end_array();
  } else if (value.is_string()) {
    out.value(value.get_ref<const std::string&>());
  } else if (value.is_boolean()) {
    out.value(value.get<bool>());
  } else if (value.is_number_unsigned()) {
    out.value(value.get<uint64_t>());
  } else if (value.is_number_integer()) {
    out.value(value.get<int64_t>());
  } else if (value.is_number()) {
    out.value(value.get<double>());
  } else {
    out.null();
  }
}

void write_rank(JsonWriter& out, const RankSummary& rank) {
  out.begin_object().field("rank", rank.rank);
  for (const auto& [name, field] : kRankTimes) out.field(name, rank.*field);
  for (const auto& [name, field] : kRankCounts) out.field(name, rank.*field);
  out.end_object();
}

void write_environment(JsonWriter& out, const RunEnvironment& environment) {
  out.member("environment").begin_object();
  out.field("cores", environment.cores);
  for (const auto& [name, field] : kEnvironment)
    out.field(name, environment.*field);
  out.end_object();
}

// Reads members that may be missing.
class Members {
 public:
  Members(const Json& object, std::string where)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object())
      throw UsageError(cat(where_, ": expected an object"));
  }

  bool has(const char* key) const {
    return object_.contains(key) && !object_[key].is_null();
  }
  const Json& at(const char* key) const { return object_[key]; }
  std::string where(const char* key) const { return cat(where_, ": ", key); }

  void read(const char* key, double& value) const {
    if (has(key)) value = get_number(object_, key, where_);
  }
  void read(const char* key, std::string& value) const {
    if (has(key)) value = get_string(object_, key, where_);
  }
  void read(const char* key, bool& value) const {
    if (has(key)) value = get_bool(object_, key, where_);
  }
  void read(const char* key, int64_t& value, int64_t low = 0) const {
    if (has(key)) value = get_integer(object_, key, low, kMaxInteger, where_);
  }

 private:
  const Json& object_;
  std::string where_;
};

RankSummary read_rank(const Json& object, const std::string& where) {
  const Members members(object, where);
  RankSummary rank;
  rank.rank =
      static_cast<int32_t>(get_integer(object, "rank", 0, kMaxRanks, where));
  for (const auto& [name, field] : kRankTimes) members.read(name, rank.*field);
  for (const auto& [name, field] : kRankCounts)
    members.read(name, rank.*field, -1);
  return rank;
}

void read_ranks(const Json& list, const std::string& where, RunSummary& out) {
  if (!list.is_array()) throw UsageError(cat(where, ": expected a list"));
  for (const Json& rank : list)
    out.per_rank.push_back(
        read_rank(rank, cat(where, "[", out.per_rank.size(), "]")));
}

void read_environment(const Json& object, const std::string& where,
                      RunEnvironment& out) {
  const Members members(object, where);
  members.read("cores", out.cores);
  for (const auto& [name, field] : kEnvironment) members.read(name, out.*field);
}

void read_data(const Json& object, const std::string& where, RunSummary& out) {
  const Members members(object, where);
  members.read("description", out.data);
  members.read("digest", out.data_digest);
}

void read_notes(const Json& list, const std::string& where, RunSummary& out) {
  if (!list.is_array()) throw UsageError(cat(where, ": expected a list"));
  for (const Json& note : list) {
    if (!note.is_string()) throw UsageError(cat(where, ": expected texts"));
    out.notes.push_back(note.get<std::string>());
  }
}

// Reads the members that every summary has.
void read_core(const Json& object, const std::string& where, RunSummary& out) {
  out.steps = get_integer(object, "steps", 0, kMaxInteger, where);
  out.tokens = get_integer(object, "tokens", 0, kMaxInteger, where);
  out.seconds = get_number(object, "seconds", where);
  out.digest = get_string(object, "digest", where);
  out.config = get_member(object, "config", where);
  if (!out.config.is_object())
    throw UsageError(cat(where, ": 'config' is not an object"));
  for (const char* key : {"final_loss", "eval_loss"})
    get_member(object, key, where);
}

}  // namespace

void find_late_ranks(RunSummary& summary) {
  summary.late_rank = -1;
  summary.late_seconds_per_step = 0;
  const auto steps = static_cast<double>(summary.steps_since_start());
  if (summary.per_rank.size() < 2 || steps < 1) return;
  const auto own_work = [](const RankSummary& rank) {
    return rank.forward_backward_seconds + rank.optimizer_seconds;
  };
  std::vector<double> sorted;
  for (const RankSummary& rank : summary.per_rank)
    sorted.push_back(own_work(rank));
  std::ranges::sort(sorted);
  const double middle = sorted[(sorted.size() - 1) / 2];
  const RankSummary* latest = nullptr;
  for (RankSummary& rank : summary.per_rank) {
    rank.late_seconds_per_step = std::max(0.0, own_work(rank) - middle) / steps;
    if (latest == nullptr ||
        rank.late_seconds_per_step > latest->late_seconds_per_step)
      latest = &rank;
  }
  constexpr double kNoticeable = 0.1;
  const double step = (own_work(*latest) + latest->waited_seconds) / steps;
  if (latest->late_seconds_per_step < kNoticeable * step) return;
  summary.late_rank = latest->rank;
  summary.late_seconds_per_step = latest->late_seconds_per_step;
}

std::string to_json(const RunSummary& s) {
  JsonWriter out(2);
  out.begin_object()
      .field("steps", s.steps)
      .field("tokens", s.tokens)
      .field("seconds", s.seconds)
      .field("final_loss", s.final_loss)
      .field("eval_loss", s.eval_loss)
      .field("perplexity", perplexity_of(s.eval_loss))
      .field("tokens_per_second", s.tokens_per_second())
      .field("mfu", s.mfu())
      .field("digest", s.digest)
      .field("state", s.state)
      .field("interrupted", s.interrupted)
      .field("ranks", s.ranks);
  for (const auto& [name, field] : kCounts) out.field(name, s.*field);
  for (const auto& [name, field] : kRates) out.field(name, s.*field);
  for (const auto& [name, field] : kTexts) out.field(name, s.*field);
  out.member("data").begin_object();
  out.field("description", s.data).field("digest", s.data_digest).end_object();
  write_environment(out, s.environment);
  out.member("notes").values(s.notes);
  out.member("config");
  write_value(out, s.config);
  out.member("per_rank").begin_array();
  for (const RankSummary& rank : s.per_rank) write_rank(out, rank);
  out.end_array().end_object();
  return out.take() + "\n";
}

RunSummary read_summary(std::string_view text, const std::string& file) {
  const std::string where = printable(file);
  const Json object = parse_json(
      text, {.what = where, .max_bytes = kMaxBytes, .max_values = 20'000'000});
  const Members members(object, where);
  RunSummary out;
  read_core(object, where, out);
  members.read("final_loss", out.final_loss);
  members.read("eval_loss", out.eval_loss);
  members.read("interrupted", out.interrupted);
  // Files that are older than `state` say only this.
  if (out.interrupted) out.state = "stopped";
  members.read("state", out.state);
  members.read("ranks", out.ranks, 1);
  for (const auto& [name, field] : kCounts) members.read(name, out.*field, -1);
  for (const auto& [name, field] : kRates) members.read(name, out.*field);
  for (const auto& [name, field] : kTexts) members.read(name, out.*field);
  if (members.has("data"))
    read_data(members.at("data"), members.where("data"), out);
  if (members.has("environment"))
    read_environment(members.at("environment"), members.where("environment"),
                     out.environment);
  if (members.has("notes"))
    read_notes(members.at("notes"), members.where("notes"), out);
  if (members.has("per_rank"))
    read_ranks(members.at("per_rank"), members.where("per_rank"), out);
  return out;
}

}  // namespace canzona::trace
