// Replaces MPI in a build without it.
#include "canzona/base/error.h"
#include "canzona/comm/mpi/mpi_session.h"

namespace canzona {
namespace {

constexpr const char* kWhyNot =
    "this build has no MPI; install Open MPI (libopenmpi-dev and openmpi-bin) "
    "and build again, or use ranks that are threads";

}  // namespace

struct MpiSession::State {};

bool mpi_is_built() { return false; }

std::string mpi_description() { return kWhyNot; }

MpiSession::MpiSession(const MpiOptions&) { throw UsageError(kWhyNot); }
MpiSession::~MpiSession() = default;

// No session can exist, so these are never called.
int MpiSession::rank() const { throw UsageError(kWhyNot); }
int MpiSession::size() const { throw UsageError(kWhyNot); }
const std::vector<std::string>& MpiSession::nodes() const {
  throw UsageError(kWhyNot);
}
int MpiSession::ranks_per_node() const { throw UsageError(kWhyNot); }
std::unique_ptr<Transport> MpiSession::make_world(std::chrono::nanoseconds) {
  throw UsageError(kWhyNot);
}
void MpiSession::abort(std::string_view) { throw UsageError(kWhyNot); }
void MpiSession::finish(std::chrono::nanoseconds) { throw UsageError(kWhyNot); }
void MpiSession::finish_unfinalized(std::chrono::nanoseconds) {
  throw UsageError(kWhyNot);
}

}  // namespace canzona
