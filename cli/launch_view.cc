#include "cli/launch_view.h"

#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"

namespace canzona::cli {
namespace {

constexpr const char* kBetween = " · ";

std::string what_happened(const LaunchedAttempt& attempt) {
  std::string out = attempt.cause.words;
  if (attempt.step > 0) out += cat(" at step ", attempt.step);
  if (!attempt.operation.empty()) out += " in " + attempt.operation;
  if (!attempt.reason.empty()) out += ": " + attempt.reason;
  return out;
}

std::string checkpoint_words(const LaunchReport& report) {
  if (report.run.empty()) return "no run folder, so no checkpoint";
  if (!report.checkpoint) return "no checkpoint yet";
  return cat("last checkpoint step ", *report.checkpoint, " (verified)");
}

std::string what_to_do(const LaunchReport& report) {
  const std::string again =
      report.run.empty() ? "run it again" : "run it again with --resume auto";
  switch (report.exit_status()) {
    case ExitStatus::kUsage:
      return "correct the command";
    case ExitStatus::kDataLost:
      return report.run.empty()
                 ? "look at the data"
                 : cat("look at it with canzona ckpt verify ", report.run);
    case ExitStatus::kNumerical:
      return "try a lower learning rate, a longer warmup or a smaller clip";
    case ExitStatus::kStorage:
      return cat("make room on the disk, then ", again);
    case ExitStatus::kPeerLost:
    case ExitStatus::kInterrupted:
    case ExitStatus::kTerminated:
      return again;
    default:
      return "see the lines above; if it was not the memory, please report it";
  }
}

std::string restarts_word(int count) {
  return count == 1 ? "1 restart" : cat(count, " restarts");
}

void write_end(JsonWriter& out, const ProcessEnd& end) {
  out.member("exit");
  if (end.exit_status >= 0)
    out.value(end.exit_status);
  else
    out.null();
  out.member("signal");
  if (end.signal != 0)
    out.value(signal_name(end.signal));
  else
    out.null();
}

void write_ranks(JsonWriter& out, const AttemptResult& result) {
  out.member("ends").begin_array();
  for (const RankEnd& rank : result.ranks) {
    out.begin_object().field("rank", rank.rank);
    write_end(out, rank.end);
    out.field("seconds", rank.seconds).field("killed", rank.killed);
    out.end_object();
  }
  out.end_array();
}

void write_attempt(JsonWriter& out, const LaunchedAttempt& attempt) {
  const Cause& cause = attempt.cause;
  out.begin_object()
      .field("ranks", attempt.num_ranks)
      .field("seconds", attempt.result.seconds)
      .field("exit", cause.status)
      .field("cause", cause.words);
  out.member("asked");
  if (cause.asked != 0)
    out.value(signal_name(cause.asked));
  else
    out.null();
  out.member("failed_ranks").values(cause.ranks);
  out.field("operation", attempt.operation).field("reason", attempt.reason);
  out.member("step");
  if (attempt.step > 0)
    out.value(attempt.step);
  else
    out.null();
  write_ranks(out, attempt.result);
  out.end_object();
}

}  // namespace

std::string launch_line(const LaunchReport& report) {
  std::vector<std::string> parts{what_happened(report.last())};
  if (report.exit_status() == ExitStatus::kDone) {
    parts.push_back(restarts_word(report.num_restarts()));
    return join(parts, kBetween);
  }
  if (const int asked = report.last().cause.asked; asked != 0)
    parts.push_back(cat("after ", signal_name(asked)));
  parts.push_back(checkpoint_words(report));
  if (!report.why_not_again.empty()) parts.push_back(report.why_not_again);
  if (report.num_restarts() > 0)
    parts.push_back(cat("after ", restarts_word(report.num_restarts())));
  parts.push_back(what_to_do(report));
  parts.push_back(cat("exit ", report.exit_status()));
  return join(parts, kBetween);
}

std::string launch_json(const LaunchReport& report) {
  JsonWriter out(2);
  out.begin_object()
      .field("exit", report.exit_status())
      .field("message", launch_line(report))
      .field("transport", report.transport)
      .field("run", report.run)
      .field("ranks", report.last().num_ranks)
      .field("restarts", report.num_restarts())
      .field("max_restarts", report.max_restarts);
  out.member("last_checkpoint");
  if (report.checkpoint)
    out.value(*report.checkpoint);
  else
    out.null();
  out.member("attempts").begin_array();
  for (const LaunchedAttempt& attempt : report.attempts)
    write_attempt(out, attempt);
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona::cli
