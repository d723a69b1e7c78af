#include "canzona/report/train_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "canzona/base/text.h"
#include "canzona/report/shown_plan.h"

namespace canzona::report {
namespace {

std::string named(const Ink& ink, const char* name, std::string_view value,
                  size_t width) {
  return fmt::format("{} {}", ink(Tone::kDim, std::string(name) + ":"),
                     pad_left(value, width));
}

std::string milliseconds(double value) {
  return fmt::format("{:.{}f}ms", value, value < 100 ? 1 : 0);
}

std::string memory_text(int64_t bytes) {
  constexpr double kMebi = 1 << 20;
  const double mebibytes = static_cast<double>(bytes) / kMebi;
  return mebibytes < 10240 ? fmt::format("{:.0f}MiB", mebibytes)
                           : fmt::format("{:.1f}GiB", mebibytes / 1024);
}

std::string comm_text(const StepMetrics& m) {
  const double hidden = std::clamp(m.hidden_fraction, 0.0, 1.0);
  return fmt::format("{} ({:3.0f}% hidden)",
                     pad_left(milliseconds(m.comm_ms), 7),
                     std::floor(hidden * 100 + 1e-9));
}

std::string tokens_rate_text(double per_second) {
  if (!std::isfinite(per_second)) return "-";
  return grouped(std::llround(std::clamp(per_second, 0.0, 1e15)));
}

std::string step_text(int64_t step, int64_t total_steps, const Ink& ink) {
  const size_t digits =
      std::max(fmt::format("{}", total_steps).size(), size_t{2});
  return named(ink, "step", ink(Tone::kBold, fmt::format("{}", step)), digits);
}

}  // namespace

std::string step_line(const StepMetrics& m, int64_t total_steps,
                      const Ink& ink) {
  std::string line = step_text(m.step, total_steps, ink);
  const auto add = [&](const char* name, const std::string& value,
                       size_t width) {
    line += "  " + named(ink, name, value, width);
  };
  add("loss", ink(Tone::kAccent, fmt::format("{:.4f}", m.loss)), 7);
  add("grad_norm", fmt::format("{:.4g}", m.grad_norm), 6);
  add("lr", fmt::format("{:.1e}", m.lr), 7);
  add("tps", tokens_rate_text(m.tokens_per_second), 7);
  add("opt", milliseconds(m.optimizer_ms), 7);
  add("comm", comm_text(m), 0);
  add("memory", memory_text(m.memory_bytes), 6);
  if (m.flops_per_second)
    add("TFLOP/s", fmt::format("{:.1f}", *m.flops_per_second * 1e-12), 5);
  if (m.mfu) add("mfu", fmt::format("{:.1f}%", 100 * *m.mfu), 5);
  if (m.skipped)
    line +=
        "  " + ink(Tone::kPoor, "skipped: " + nonfinite_text(m.nonfinite_tensor,
                                                             m.nonfinite_rank));
  return line;
}

std::string evaluation_line(int64_t step, double eval_loss, int64_t total_steps,
                            const Ink& ink) {
  return fmt::format(
      "{}  {}  {}", step_text(step, total_steps, ink),
      named(ink, "eval_loss",
            ink(Tone::kGood, fmt::format("{:.4f}", eval_loss)), 7),
      named(ink, "perplexity", perplexity_text(eval_loss), 0));
}

std::string saved_line(const SavedText& saved, int64_t total_steps,
                       const Ink& ink) {
  return cat(step_text(saved.step, total_steps, ink), "  saved ",
             human_bytes(saved.bytes), " in ", human_seconds(saved.seconds),
             ", paused for ", human_seconds(saved.pause_seconds));
}

std::string nonfinite_text(const std::string& tensor, int64_t rank) {
  return fmt::format(
      "{} was not finite {}",
      tensor.empty() ? "a gradient"
                     : "the gradient of " + printable(tensor, 200),
      rank < 0 ? "in the sum over ranks" : fmt::format("on rank {}", rank));
}

std::string late_text(const RunSummary& summary) {
  if (summary.late_rank < 0) return "";
  return cat("rank ", summary.late_rank, " was late by ",
             human_seconds(summary.late_seconds_per_step),
             " in a step: its own work took that much longer than the median "
             "rank's, and the others waited for it");
}

std::string perplexity_text(double eval_loss) {
  const double perplexity = perplexity_of(eval_loss);
  return std::isfinite(perplexity) ? fmt::format("{:.4g}", perplexity) : "–";
}

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e8) return "?";
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60,
                     whole % 60);
}

std::string progress_line(const TrainProgress& p, size_t width) {
  const auto step = static_cast<double>(p.step);
  const auto total = static_cast<double>(p.total_steps);
  const double rate = p.seconds > 0 ? step / p.seconds : 0;
  const std::string eta =
      rate > 0 ? clock_text((total - step) / rate) : std::string("?");
  const std::string words =
      fmt::format(" {}/{}  loss {:.3f}  {:.3g} steps/s  ETA {}", p.step,
                  p.total_steps, p.loss, rate, eta);
  const size_t room = width > words.size() + 2 ? width - words.size() - 2 : 0;
  const size_t columns = std::min(room, size_t{30});
  if (columns < 4) return shorten(words, width);
  return "[" + pad_right(bar(step, std::max(total, step), columns), columns) +
         "]" + words;
}

namespace {

std::string finite_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "not finite";
}

std::string losses_text(const RunSummary& summary) {
  const bool evaluated = summary.eval_sequences > 0;
  if (summary.steps == 0 && !evaluated) return "no loss was measured";
  std::string text = summary.steps == 0
                         ? std::string("no step was run")
                         : "loss " + finite_text(summary.final_loss);
  if (!evaluated) return text + ", not evaluated at the end";
  text += ", evaluation loss " + finite_text(summary.eval_loss) + " (";
  if (std::isfinite(summary.eval_loss))
    text += cat("perplexity ", perplexity_text(summary.eval_loss), ", ");
  return text + counted_text(summary.eval_sequences, "sequence") + ")";
}

std::string run_speed_text(const RunSummary& summary) {
  if (summary.steps == 0) return "";
  std::string text = cat(human_count(summary.tokens_per_second()), " tokens/s");
  if (std::isnan(summary.mfu()))
    return text + "; MFU not known: the speed of products was not measured\n";
  return text + fmt::format("; MFU {:.1f} % of {}/s, {}\n", 100 * summary.mfu(),
                            flops_text(summary.product_flops_per_second),
                            summary.environment.gpu.empty()
                                ? "measured in fp32 products of all ranks"
                                : "the nominal peak of their GPUs");
}

// "rank 2 was late by 203 ms in a step: …"
std::string late_line(const RunSummary& summary) {
  const std::string text = late_text(summary);
  return text.empty() ? "" : text + "\n";
}

std::string saves_line(const RunSummary& summary) {
  if (summary.saved_step < 0) return "";
  return cat("saved ", counted_text(summary.saves, "checkpoint"),
             ", the last one of step ", summary.saved_step, "; steps waited ",
             human_seconds(summary.save_pause_seconds), "\n");
}

std::string skipped_text(const RunSummary& summary) {
  if (summary.skipped_steps == 0) return "";
  return cat(summary.skipped_steps, " of ", counted_text(summary.steps, "step"),
             summary.skipped_steps == 1 ? " was" : " were",
             " skipped and changed nothing; in the last of them ",
             nonfinite_text(summary.nonfinite_tensor, summary.nonfinite_rank),
             "\n");
}

// Returns spikes_text() as a line.
std::string spikes_line(const RunSummary& summary) {
  const std::string text = spikes_text(summary);
  return text.empty() ? "" : text + "\n";
}

}  // namespace

std::string spike_text(int64_t step, double loss, double over) {
  return cat("the loss of step ", step, " was ", finite_text(loss),
             fmt::format(", {:.3g} times the median of those before it, {:.4f}",
                         loss / over, over));
}

std::string spikes_text(const RunSummary& summary) {
  if (summary.spikes == 0) return "";
  return cat(
      summary.spikes, " of ", counted_text(summary.steps, "step"),
      " had a loss spike; ", summary.spikes == 1 ? "" : "the last: ",
      spike_text(summary.spike_step, summary.spike_loss, summary.spike_over));
}

std::string closing_lines(const RunSummary& summary,
                          const std::string& report) {
  std::string text =
      cat(counted_text(summary.steps, "step"), ", ",
          counted_text(summary.tokens, "token"), " in ",
          human_seconds(summary.seconds), ": ", losses_text(summary), "\n",
          run_speed_text(summary), late_line(summary), skipped_text(summary),
          spikes_line(summary), saves_line(summary), "digest ", summary.digest,
          "\n");
  if (summary.state == "stopped") text = "ended early, as requested: " + text;
  if (summary.state == "diverged") text = "ended, diverged: " + text;
  if (!report.empty()) text += cat("report: ", printable(report), "\n");
  return text;
}

}  // namespace canzona::report
