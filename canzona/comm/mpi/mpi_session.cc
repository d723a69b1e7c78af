#include "canzona/comm/mpi/mpi_session.h"

#include <mpi.h>

#include <algorithm>
#include <numeric>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/mpi/mpi_world.h"
#include "canzona/comm/mpi/process_watch.h"

namespace canzona {
using namespace comm;
namespace {

const char* name_of_level(int level) {
  if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
  if (level == MPI_THREAD_FUNNELED) return "MPI_THREAD_FUNNELED";
  if (level == MPI_THREAD_SERIALIZED) return "MPI_THREAD_SERIALIZED";
  return "MPI_THREAD_MULTIPLE";
}

void start_mpi() {
  int started = 0;
  MPI_Initialized(&started);
  if (started != 0) throw UsageError("MPI was started before, by others");
  int provided = MPI_THREAD_SINGLE;
  require_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided),
              "MPI_Init_thread");
  // MPICH reports errors of requests to these handlers.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  if (provided >= MPI_THREAD_MULTIPLE) return;
  MPI_Finalize();
  throw UsageError(cat("MPI provides ", name_of_level(provided),
                       " where MPI_THREAD_MULTIPLE is needed (",
                       mpi_description(), ")"));
}

}  // namespace

struct MpiSession::State {
  std::shared_ptr<MpiWorld> world;
  std::unique_ptr<Transport> everyone;
  std::unique_ptr<Communicator> end;  // where all ranks meet at the end
};

bool mpi_is_built() { return true; }

std::string mpi_description() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string whole = text.data();
  return printable(whole.substr(0, whole.find('\n')));
}

MpiSession::MpiSession(const MpiOptions& options)
    : state_(std::make_unique<State>()) {
  start_mpi();
  state_->world = std::make_shared<MpiWorld>(options);
  std::vector<int> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  state_->everyone =
      std::make_unique<MpiTransport>(state_->world, std::move(ranks), 0);
  state_->end = std::make_unique<Communicator>(
      make_world(), cpu_wire_ops(), CommunicatorOptions{.segment_bytes = 1},
      "session");
}

MpiSession::~MpiSession() {
  if (state_->end == nullptr) return;
  state_->world->abort(
      cat("rank ", rank(), " ended its session before the others"));
}

int MpiSession::rank() const { return state_->world->rank(); }
int MpiSession::size() const { return state_->world->size(); }
const std::vector<std::string>& MpiSession::nodes() const {
  return state_->world->nodes();
}

int MpiSession::ranks_per_node() const {
  const std::vector<std::string>& names = nodes();
  const auto other = std::ranges::find_if(
      names, [&](const std::string& name) { return name != names.front(); });
  const auto run = static_cast<size_t>(other - names.begin());
  if (names.size() % run != 0) return 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool first = i % run == 0;
    if (!first && names[i] != names[i - 1]) return 0;
    if (first && i > 0 && names[i] == names[i - 1]) return 0;
  }
  return static_cast<int>(run);
}

std::unique_ptr<Transport> MpiSession::make_world(
    std::chrono::nanoseconds time) {
  std::vector<int> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return state_->everyone->subgroup(ranks, 0, 0, deadline_after(time));
}

void MpiSession::abort(std::string_view reason) {
  state_->world->abort(reason);
}

void MpiSession::finish_unfinalized(std::chrono::nanoseconds time) {
  if (state_->end == nullptr) return;
  state_->end->barrier({.label = "end of the program", .deadline = time});
  state_->end.reset();
  state_->everyone.reset();
}

void MpiSession::finish(std::chrono::nanoseconds time) {
  if (state_->end == nullptr) return;
  finish_unfinalized(time);
  // All ranks have come, but one may stop or die before MPI has been finalized,
  // which would then block forever.
  const TimeLimit limit(time, [&] {
    return cat("rank ", rank(),
               ": all ranks reached the end of the program, but MPI did not "
               "end within ",
               human_seconds(std::chrono::duration<double>(time).count()), ": ",
               state_->world->missing_ranks());
  });
  state_->world->finalize();
}

}  // namespace canzona
