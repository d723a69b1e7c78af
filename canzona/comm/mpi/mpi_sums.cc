// Sums by MPI itself, for --fast-reduce.
#include "canzona/base/check.h"
#include "canzona/comm/mpi/mpi_transport.h"

namespace canzona {

void MpiTransport::prepare_own_sums(Deadline until) {
  sums_ = world_->found(world_ranks_, tag_of(MpiKind::kMessage), until);
}

// All ranks have met: whoever is missing from now on has come before.
template <class Function>
void MpiTransport::post_sum(const char* call, Function function) {
  CANZONA_CHECK(sums_ != MPI_COMM_NULL, "sums were not prepared");
  CANZONA_CHECK_EQ(num_pending_, 0, "messages beside a sum");
  adding_ = true;
  ++num_pending_;
  num_pauses_ = 0;
  for (Peer& with : peers_) with.heard = true;
  world_->call_mpi([&] { require_mpi(function(&requests_.back()), call); });
}

void MpiTransport::post_own_all_reduce(std::span<float> data) {
  post_sum("MPI_Iallreduce", [&](MPI_Request* request) {
    return MPI_Iallreduce(MPI_IN_PLACE, data.data(),
                          static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                          sums_, request);
  });
}

void MpiTransport::post_own_reduce_scatter(const float* input,
                                           std::span<const int> counts,
                                           float* output) {
  post_sum("MPI_Ireduce_scatter", [&](MPI_Request* request) {
    return MPI_Ireduce_scatter(input, output, counts.data(), MPI_FLOAT, MPI_SUM,
                               sums_, request);
  });
}

}  // namespace canzona
