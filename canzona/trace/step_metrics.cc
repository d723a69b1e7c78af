#include "canzona/trace/step_metrics.h"

#include <cmath>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"

namespace canzona {
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
  if (metrics.mfu) out.field("mfu", *metrics.mfu);
  if (metrics.skipped) {
    out.field("skipped", true);
    out.field("nonfinite_tensor", metrics.nonfinite_tensor);
    if (metrics.nonfinite_rank >= 0)
      out.field("nonfinite_rank", metrics.nonfinite_rank);
  }
  if (metrics.spike_over) out.field("spike_over", *metrics.spike_over);
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

}  // namespace canzona
