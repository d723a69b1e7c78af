#include "canzona/report/train_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/terminal_bars.h"

namespace canzona {
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

std::string tokens_text(double per_second) {
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
  add("tps", tokens_text(m.tokens_per_second), 7);
  add("opt", milliseconds(m.optimizer_ms), 7);
  add("comm", comm_text(m), 0);
  add("memory", memory_text(m.memory_bytes), 6);
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

std::string nonfinite_text(const std::string& tensor, int64_t rank) {
  return fmt::format(
      "{} was not finite {}",
      tensor.empty() ? "a gradient"
                     : "the gradient of " + printable(tensor, 200),
      rank < 0 ? "in the sum over ranks" : fmt::format("on rank {}", rank));
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

}  // namespace canzona
