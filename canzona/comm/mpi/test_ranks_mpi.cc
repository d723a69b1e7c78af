#include <numeric>
#include <vector>

#include "canzona/comm/mpi/test_session.h"
#include "canzona/comm/test_ranks.h"

namespace canzona::comm {

void run_test_ranks(int num_ranks, const CommunicatorOptions& options,
                    const std::function<void(Communicator& world)>& function) {
  static const std::unique_ptr<Transport> everyone =
      test_session().make_world();
  static int64_t num_runs = 0;
  ++num_runs;
  if (num_ranks > everyone->size() || everyone->rank() >= num_ranks) return;
  std::vector<int> members(static_cast<size_t>(num_ranks));
  std::iota(members.begin(), members.end(), 0);
  CommunicatorOptions own = options;
  own.deadline = std::chrono::seconds(30);
  Communicator world(
      everyone->subgroup(members, num_runs, 0, deadline_after(own.deadline)),
      cpu_wire_ops(), own, "world");
  function(world);
}

}  // namespace canzona::comm
