#include "canzona/comm/tcp/tcp_session.h"

#include <numeric>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/tcp/tcp_world.h"

namespace canzona {
using namespace comm;
namespace {

constexpr int64_t kMostTcpRanks = int64_t{1} << 20;
constexpr int64_t kMostPortNumber = 65534;  // the next one is used, too

std::string needed(const Variables& variables, const char* name,
                   const std::string& launcher) {
  const char* value = variables(name);
  if (value == nullptr)
    throw UsageError(cat("this process was started by ", launcher, ", but ",
                         name, " is not set"));
  return value;
}

int counted(const Variables& variables, const char* name,
            const std::string& launcher) {
  return static_cast<int>(
      parse_integer(needed(variables, name, launcher), 0, kMostTcpRanks, name));
}

int local_ranks(const Variables& variables, const char* name) {
  if (variables(name) == nullptr) return 0;
  return static_cast<int>(
      parse_integer(variables(name), 1, kMostTcpRanks, name));
}

int local_rank(const Variables& variables, const char* name) {
  if (variables(name) == nullptr) return -1;
  return static_cast<int>(
      parse_integer(variables(name), 0, kMostTcpRanks, name));
}

std::optional<TcpLaunch> by_script(const Variables& variables) {
  if (variables("CANZONA_RANK") == nullptr) return {};
  TcpLaunch launch{.launcher = "a script that sets CANZONA_RANK"};
  launch.rank = counted(variables, "CANZONA_RANK", launch.launcher);
  launch.num_ranks = counted(variables, "CANZONA_NUM_RANKS", launch.launcher);
  launch.num_local = local_ranks(variables, "CANZONA_NUM_LOCAL");
  launch.local_rank = local_rank(variables, "CANZONA_LOCAL_RANK");
  // All ranks are on one machine.
  if (launch.local_rank < 0 && launch.num_local == launch.num_ranks)
    launch.local_rank = launch.rank;
  launch.meeting =
      parse_endpoint(needed(variables, "CANZONA_RENDEZVOUS", launch.launcher));
  if (const char* token = variables("CANZONA_JOB_TOKEN")) launch.token = token;
  return launch;
}

std::optional<TcpLaunch> by_torchrun(const Variables& variables) {
  if (variables("TORCHELASTIC_RUN_ID") == nullptr) return {};
  TcpLaunch launch{.launcher = "torchrun"};
  launch.rank = counted(variables, "RANK", launch.launcher);
  launch.num_ranks = counted(variables, "WORLD_SIZE", launch.launcher);
  launch.num_local = local_ranks(variables, "LOCAL_WORLD_SIZE");
  launch.local_rank = local_rank(variables, "LOCAL_RANK");
  launch.meeting = {needed(variables, "MASTER_ADDR", launch.launcher),
                    1 + static_cast<int>(parse_integer(
                            needed(variables, "MASTER_PORT", launch.launcher),
                            1, kMostPortNumber, "MASTER_PORT"))};
  launch.token = variables("TORCHELASTIC_RUN_ID");
  return launch;
}

std::optional<TcpLaunch> by_srun(const Variables& variables) {
  if (variables("SLURM_STEP_ID") == nullptr ||
      variables("SLURM_PROCID") == nullptr)
    return {};
  TcpLaunch launch{.launcher = "srun"};
  launch.rank = counted(variables, "SLURM_PROCID", launch.launcher);
  launch.num_ranks =
      counted(variables, "SLURM_STEP_NUM_TASKS", launch.launcher);
  launch.local_rank = local_rank(variables, "SLURM_LOCALID");
  if (const char* job = variables("SLURM_JOB_ID"))
    launch.token = cat(job, ".", variables("SLURM_STEP_ID"));
  return launch;
}

}  // namespace

// Slurm's variables are everywhere in its allocations, so any other launcher
// takes precedence.
std::optional<TcpLaunch> find_tcp_launch(const Variables& variables) {
  const std::optional<TcpLaunch> ours = by_script(variables);
  const std::optional<TcpLaunch> torchrun = by_torchrun(variables);
  if (ours && torchrun &&
      (ours->rank != torchrun->rank || ours->num_ranks != torchrun->num_ranks))
    throw UsageError(cat("launchers contradict each other: ", ours->launcher,
                         " says rank ", ours->rank, " of ", ours->num_ranks,
                         ", torchrun says rank ", torchrun->rank, " of ",
                         torchrun->num_ranks));
  if (ours) return ours;
  if (torchrun) return torchrun;
  return by_srun(variables);
}

std::optional<TcpLaunch> find_tcp_launch() {
  return find_tcp_launch(process_variables());
}

struct TcpSession::State {
  std::shared_ptr<TcpWorld> world;
  std::unique_ptr<Transport> everyone;
  std::unique_ptr<Communicator> end;  // where all ranks meet at the end
  int64_t num_worlds = 0;
};

TcpSession::TcpSession(const TcpOptions& options)
    : state_(std::make_unique<State>()) {
  state_->world = std::make_shared<TcpWorld>(options);
  std::vector<int> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  state_->everyone =
      std::make_unique<TcpTransport>(state_->world, std::move(ranks), 1);
  state_->end = std::make_unique<Communicator>(
      make_world(), cpu_wire_ops(), CommunicatorOptions{.segment_bytes = 1},
      "session");
}

TcpSession::~TcpSession() {
  if (state_->end == nullptr) return;
  state_->world->abort(
      cat("rank ", rank(), " ended its session before the others"));
}

int TcpSession::rank() const { return state_->world->rank(); }
int TcpSession::size() const { return state_->world->size(); }
const std::vector<std::string>& TcpSession::nodes() const {
  return state_->world->nodes();
}

std::unique_ptr<Transport> TcpSession::make_world(
    std::chrono::nanoseconds time) {
  std::vector<int> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return state_->everyone->subgroup(ranks, state_->num_worlds++, 0,
                                    deadline_after(time));
}

void TcpSession::abort(std::string_view reason) {
  state_->world->abort(reason);
}

void TcpSession::finish(std::chrono::nanoseconds time) {
  if (state_->end == nullptr) return;
  state_->end->barrier({.label = "end of the program", .deadline = time});
  state_->end.reset();
  state_->everyone.reset();
  state_->world->finish();
}

}  // namespace canzona
