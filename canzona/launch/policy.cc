#include "canzona/launch/policy.h"

#include <algorithm>
#include <charconv>
#include <csignal>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

constexpr std::string_view kResumeFlag = "--resume";
constexpr std::string_view kOverwriteFlag = "--overwrite";

bool is_lost(const RankEnd& rank) {
  return rank.end.signal != 0 || !rank.killed.empty();
}

bool is_asked_end(const ProcessEnd& end) {
  return end.exit_status == ExitStatus::kInterrupted ||
         end.exit_status == ExitStatus::kTerminated || end.signal == SIGINT ||
         end.signal == SIGTERM;
}

// True if a rank's end is its own: it neither reports the loss of another nor
// was killed because it did not end.
bool is_own_end(const RankEnd& rank) {
  return rank.end.is_known() && rank.killed.empty() && !rank.end.is_good() &&
         rank.end.exit_status != ExitStatus::kPeerLost;
}

std::string rank_word(const std::vector<int>& ranks) {
  if (ranks.front() < 0) return "the run";
  std::vector<std::string> numbers;
  for (const int rank : ranks) numbers.push_back(cat(rank));
  return cat(ranks.size() == 1 ? "rank " : "ranks ", join(numbers, ", "));
}

int status_of(const ProcessEnd& end) {
  if (end.signal == SIGINT) return ExitStatus::kInterrupted;
  if (end.signal == SIGTERM) return ExitStatus::kTerminated;
  return end.signal != 0 ? ExitStatus::kPeerLost : end.exit_status;
}

// Returns the ranks for which `holds`, in the order in which they ended.
template <class Holds>
std::vector<const RankEnd*> ended_in_order(const AttemptResult& result,
                                           const Holds& holds) {
  std::vector<const RankEnd*> found;
  for (const RankEnd& rank : result.ranks)
    if (holds(rank)) found.push_back(&rank);
  std::ranges::sort(found, {}, &RankEnd::order);
  return found;
}

void set_ranks(const std::vector<const RankEnd*>& found, Cause& cause) {
  for (const RankEnd* rank : found) cause.ranks.push_back(rank->rank);
  std::ranges::sort(cause.ranks);
  cause.end = found.front()->end;
}

// Names the ranks that were lost in the same way as the first one.
Cause lost_ranks(const std::vector<const RankEnd*>& own) {
  Cause cause;
  std::vector<const RankEnd*> alike;
  for (const RankEnd* rank : own)
    if (rank->end.signal == own.front()->end.signal) alike.push_back(rank);
  set_ranks(alike, cause);
  cause.is_signal = true;
  cause.status = status_of(cause.end);
  cause.words = cat(rank_word(cause.ranks),
                    is_asked_end(cause.end) ? " ended (" : " lost (",
                    to_string(cause.end), ")");
  return cause;
}

Cause failed_rank(const RankEnd& rank) {
  Cause cause;
  set_ranks({&rank}, cause);
  cause.status = cause.end.exit_status;
  cause.words = cat(rank_word(cause.ranks),
                    is_asked_end(cause.end) ? " ended (" : " failed (",
                    to_string(cause.end), ")");
  return cause;
}

// No rank failed on its own: one stopped, finished too early, or is on a
// machine that cannot be observed.
Cause missed_rank(const AttemptResult& result) {
  Cause cause;
  cause.status = ExitStatus::kPeerLost;
  const auto killed = ended_in_order(
      result, [](const RankEnd& rank) { return !rank.killed.empty(); });
  const auto early = ended_in_order(
      result, [](const RankEnd& rank) { return rank.end.is_good(); });
  const auto rest = ended_in_order(
      result, [](const RankEnd& rank) { return rank.end.is_known(); });
  if (!killed.empty()) {
    set_ranks(killed, cause);
    cause.is_signal = true;
    cause.words = cat(rank_word(cause.ranks), " ", killed.front()->killed);
  } else if (!early.empty()) {
    set_ranks(early, cause);
    cause.ended_early = true;
    cause.words =
        cat(rank_word(cause.ranks), " ended before the others (exit status 0)");
  } else {
    set_ranks(rest, cause);
    cause.words =
        cat(rank_word({cause.ranks.front()}), " lost another (exit status 4)");
  }
  return cause;
}

// mpirun ended, and at least one rank is unaccounted for.
Cause launcher_end(const AttemptResult& result) {
  Cause cause;
  cause.end = result.launcher;
  cause.is_signal = cause.end.signal != 0;
  const bool any_started = std::ranges::any_of(result.ranks, &RankEnd::started);
  cause.status = cause.is_signal ? ExitStatus::kPeerLost
                                 : (any_started ? ExitStatus::kPeerLost
                                                : ExitStatus::kFailed);
  cause.words = any_started ? cat(result.starter, " ended before its ranks (",
                                  to_string(cause.end), ")")
                            : cat(result.starter, " did not start any rank (",
                                  to_string(cause.end), ")");
  return cause;
}

}  // namespace

namespace {

Cause cause_of_ends(const AttemptResult& result) {
  const auto own = ended_in_order(result, is_own_end);
  const auto known = ended_in_order(
      result, [](const RankEnd& rank) { return rank.end.is_known(); });
  if (!own.empty())
    return own.front()->end.signal != 0 ? lost_ranks(own)
                                        : failed_rank(*own.front());
  if (known.size() < result.ranks.size() || known.empty())
    return launcher_end(result);
  const bool all_good = std::ranges::all_of(
      known, [](const RankEnd* rank) { return rank->end.is_good(); });
  if (!all_good) return missed_rank(result);
  Cause none;
  none.words = "done";
  return none;
}

}  // namespace

Cause cause_of(const AttemptResult& result) {
  Cause cause = cause_of_ends(result);
  if (result.signal != 0 && is_worth_restarting(cause))
    end_as_asked(result.signal, cause);
  return cause;
}

void end_as_asked(int signal, Cause& cause) {
  cause.asked = signal;
  cause.status =
      signal == SIGINT ? ExitStatus::kInterrupted : ExitStatus::kTerminated;
}

bool is_worth_restarting(const Cause& cause) {
  return cause.status == ExitStatus::kPeerLost;
}

int num_remaining(const AttemptResult& result) {
  return static_cast<int>(std::ranges::count_if(
      result.ranks, [](const RankEnd& rank) { return !is_lost(rank); }));
}

std::chrono::milliseconds pause_before(int restart) {
  constexpr std::chrono::milliseconds kFirst{250}, kLongest{10000};
  constexpr int kMostDoublings = 6;
  return std::min(kLongest,
                  kFirst * (1 << std::clamp(restart - 1, 0, kMostDoublings)));
}

std::vector<std::string> resuming(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == kResumeFlag)
      ++i;
    else if (!words[i].starts_with(cat(kResumeFlag, "=")) &&
             words[i] != kOverwriteFlag)
      out.push_back(words[i]);
  }
  out.insert(out.end(), {std::string(kResumeFlag), "auto"});
  return out;
}

std::string resume_wish(const std::vector<std::string>& words) {
  const std::string with_value = cat(kResumeFlag, "=");
  std::string wish;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == kResumeFlag && i + 1 < words.size())
      wish = words[++i];
    else if (words[i].starts_with(with_value))
      wish = words[i].substr(with_value.size());
  }
  return wish;
}

std::vector<std::string> restart_words(const std::vector<std::string>& words,
                                       const RestartState& state) {
  if (state.has_saved) return resuming(words);
  const std::string wish = resume_wish(words);
  const bool overwrites =
      std::ranges::find(words, kOverwriteFlag) != words.end();
  if (wish.empty() && !overwrites && !state.had_checkpoint && !state.is_empty)
    return resuming(words);
  std::vector<std::string> out = words;
  if (state.has_remains && !overwrites && wish != "auto")
    out.emplace_back(kOverwriteFlag);
  return out;
}

void ErrorLines::add(int rank, std::string_view words) {
  constexpr size_t kLongest = 4096;
  const auto is_of_rank = [&](const Line& line) { return line.rank == rank; };
  if (std::ranges::count_if(lines_, is_of_rank) >= kMostOfRank)
    lines_.erase(std::ranges::find_if(lines_, is_of_rank));
  lines_.push_back({rank, std::string(words.substr(0, kLongest))});
}

// Looks for "NAME #NUMBER 'LABEL'".
std::string operation_in(std::string_view line) {
  for (size_t hash = line.find(" #"); hash != std::string_view::npos;
       hash = line.find(" #", hash + 1)) {
    size_t end = hash + 2;
    while (end < line.size() && line[end] >= '0' && line[end] <= '9') ++end;
    const size_t name = line.rfind(' ', hash - 1);
    if (end == hash + 2 || hash == 0) continue;
    const size_t begin = name == std::string_view::npos ? 0 : name + 1;
    std::string out(line.substr(begin, hash - begin));
    if (line.substr(end).starts_with(" '")) {
      const size_t close = line.find('\'', end + 2);
      if (close != std::string_view::npos)
        out += line.substr(end, close + 1 - end);
    }
    return out;
  }
  return "";
}

std::vector<std::string> mpirun_words(const MpirunOptions& options) {
  std::vector<std::string> words{options.path};
  const auto add = [&](std::initializer_list<const char*> more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  if (options.is_open_mpi) {
    // Each process has several threads, so it must not be bound to one core.
    add({"--bind-to", "none"});
    if (options.num_ranks > options.num_cpus) add({"--oversubscribe"});
    // Signals come from the launcher; mpirun itself only ends what is left.
    add({"--mca", "odls_base_sigkill_timeout", "0"});
  }
  words.insert(words.end(), {"-n", cat(options.num_ranks)});
  return words;
}

std::vector<std::pair<std::string, std::string>> mpirun_variables(
    bool is_open_mpi, bool is_root) {
  if (!is_open_mpi || !is_root) return {};
  return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
          {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
}

std::string other_launcher(const Variables& variables) {
  const auto is_set = [&](const char* name) {
    const char* value = variables(name);
    return value != nullptr && *value != '\0';
  };
  const auto is_above_one = [&](const char* name) {
    if (!is_set(name)) return false;
    const std::string_view text = variables(name);
    int number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number > 1;
  };
  if (is_set("TORCHELASTIC_RUN_ID")) return "torchrun";
  if (is_set("CANZONA_RANK")) return "canzona launch";
  // mpirun runs inside an srun step.
  if (is_set("OMPI_COMM_WORLD_RANK")) return "mpirun";
  // A shell started by `srun --pty` is a step with one task.
  if (is_set("SLURM_STEP_ID") && is_set("SLURM_PROCID") &&
      is_above_one("SLURM_STEP_NUM_TASKS"))
    return "srun";
  if (is_set("PMI_RANK") && is_above_one("PMI_SIZE")) return "mpirun";
  return "";
}

}  // namespace canzona
