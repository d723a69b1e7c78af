#include "canzona/comm/test_ranks.h"

#include "canzona/comm/thread/run_ranks.h"

namespace canzona::comm {

void run_test_ranks(int num_ranks, const CommunicatorOptions& options,
                    const std::function<void(Communicator& world)>& function) {
  run_ranks(num_ranks, {.communicator = options}, function);
}

}  // namespace canzona::comm
