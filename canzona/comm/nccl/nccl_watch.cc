#include "canzona/comm/nccl/nccl_watch.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"

namespace canzona::comm {
namespace {

// A rank sends a LateReport when an operation is late: how far its groups have
// come, and its own first late operation. Groups that do not fit are left out.
struct LateReport {
  struct Group {
    uint64_t group = 0;
    int64_t issued = -1;
    int64_t ended = -1;
  };
  std::array<Group, 32> groups{};
  bool late = false;
  uint64_t group = 0;
  Label name;
  IssuedOperation operation;
};

LateReport report_of(NcclWorld& world) {
  LateReport report;
  size_t place = 0;
  const Deadline now = std::chrono::steady_clock::now();
  world.for_each_group([&](NcclProgress& of) {
    const NcclProgress::Counts counts = of.counts();
    if (place < report.groups.size())
      report.groups[place++] = {of.group(), counts.issued, counts.ended};
    const std::optional<IssuedOperation> late = of.late(now);
    if (!late || report.late) return;
    report.late = true;
    report.group = of.group();
    report.name = Label(of.name());
    report.operation = *late;
  });
  return report;
}

struct Behind {
  size_t rank = 0;
  int64_t issued = 0;
};

// Returns the members of a late operation's group that have not issued it.
std::vector<Behind> behind_in(const std::vector<LateReport>& reports,
                              const LateReport& late) {
  std::vector<Behind> found;
  for (size_t rank = 0; rank < reports.size(); ++rank)
    for (const LateReport::Group& of : reports[rank].groups)
      if (of.group == late.group && of.issued >= 0 &&
          of.issued < late.operation.sequence)
        found.push_back({rank, of.issued});
  return found;
}

std::string words_of(size_t rank, const LateReport& late) {
  const IssuedOperation& what = late.operation;
  return cat("rank ", rank, " of ", late.name.view(), ": ",
             to_string(what.operation), " #", what.sequence, " ",
             quoted(what.label.view()), " did not end within ",
             human_seconds(std::chrono::duration<double>(what.time).count()));
}

// Looks for the first late operation that some rank has not issued: the others
// are waiting for that one. If every rank has issued everything, NCCL itself is
// stuck.
std::string find_culprit(const std::vector<LateReport>& reports) {
  const std::string none = "an NCCL operation was late and has ended since";
  std::string stuck;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const LateReport& late = reports[rank];
    if (!late.late) continue;
    const std::vector<Behind> behind = behind_in(reports, late);
    if (behind.empty() && stuck.empty())
      stuck = cat(words_of(rank, late),
                  ": all its ranks issued it, but NCCL has not finished it");
    if (behind.empty()) continue;
    std::vector<std::string> who;
    for (const Behind& of : behind)
      who.push_back(cat("rank ", of.rank, " is behind, at #", of.issued));
    return cat(words_of(rank, late), ": ", join(who, ", "));
  }
  return stuck.empty() ? none : stuck;
}

// A rank that is silent for the deadline is lost. The heartbeat that it misses
// begins one period after its last one.
std::chrono::nanoseconds deadline_of_beats(const NcclOptions& options) {
  return std::max(options.deadline - options.beat, options.deadline / 2);
}

void end_this_process(const NcclOptions& options, const std::string& why) {
  if (options.end_process) return options.end_process(why);
  std::cerr << "error: " << why << std::endl;
  std::_Exit(ExitStatus::kPeerLost);
}

}  // namespace

NcclWatch::NcclWatch(NcclWorld& world, std::unique_ptr<Transport> beats)
    : world_(world),
      beats_(
          std::move(beats), cpu_wire_ops(),
          {.deadline = deadline_of_beats(world.options()), .segment_bytes = 64},
          "the watch over NCCL"),
      thread_([this] { run(); }) {}

NcclWatch::~NcclWatch() {
  if (!thread_.joinable()) return;
  abort(
      cat("rank ", world_.rank(), " ended its NCCL session before the others"));
  thread_.join();
}

void NcclWatch::finish() {
  {
    const std::lock_guard lock(mutex_);
    if (wish_ == Wish::kNone) wish_ = Wish::kFinish;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatch::abort(std::string_view reason) {
  beats_.abort(reason);
  world_.close(std::string(reason));
  {
    const std::lock_guard lock(mutex_);
    wish_ = Wish::kAbort;
  }
  changed_.notify_all();
}

NcclWatch::Wish NcclWatch::wait_for_beat() {
  constexpr std::chrono::milliseconds kLook{20};
  const Deadline until = deadline_after(world_.options().beat);
  std::unique_lock lock(mutex_);
  while (wish_ == Wish::kNone && std::chrono::steady_clock::now() < until &&
         !beats_.is_aborted())
    changed_.wait_for(lock, kLook);
  return wish_;
}

// A gather is used because no rank in it waits for what a third rank has not
// sent: the rank that does not come is the silent one.
bool NcclWatch::beat() {
  struct Word {
    bool late = false;
    bool finishing = false;
  };
  Word own = {.finishing = wait_for_beat() == Wish::kFinish};
  require_health();
  const Deadline now = std::chrono::steady_clock::now();
  std::string under_way;  // for the error if a rank is silent
  world_.for_each_group([&](NcclProgress& of) {
    own.late = own.late || of.late(now);
    if (under_way.empty()) under_way = of.under_way();
  });
  const std::vector<Word> all = one_from_all(
      beats_, own,
      {.label = under_way.empty() ? "beat" : cat("beat during ", under_way)});
  if (std::ranges::any_of(all, &Word::late)) blame();
  return !std::ranges::all_of(all, &Word::finishing);
}

// NCCL notices a closed connection before the control plane has reported whose
// process is gone.
void NcclWatch::require_health() {
  try {
    if (!beats_.is_aborted()) world_.require_health();
  } catch (const PeerLost& error) {
    const Deadline until = deadline_after(world_.options().patience);
    while (!beats_.is_aborted() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!beats_.is_aborted()) throw;
    throw PeerLost(cat(beats_.abort_reason(), " (", error.what(), ")"));
  }
}

void NcclWatch::blame() {
  const LateReport own = report_of(world_);
  throw PeerLost(find_culprit(
      one_from_all(beats_, own, {.label = "how far groups have come"})));
}

void NcclWatch::give_up(const std::string& reason) {
  beats_.abort(reason);
  world_.close(reason);
  if (world_.abort_all()) return;
  end_this_process(
      world_.options(),
      cat("rank ", world_.rank(), ": ", reason,
          "; NCCL or the device did not "
          "end within ",
          human_seconds(
              std::chrono::duration<double>(world_.options().patience).count()),
          ", so this process does"));
}

void NcclWatch::run() {
  try {
    while (beat()) {
    }
  } catch (const PeerLost& error) {
    give_up(error.what());
  } catch (const std::exception& error) {
    // A device error does not say whose it is.
    give_up(cat("rank ", world_.rank(), ": ", error.what()));
  }
}

}  // namespace canzona::comm
