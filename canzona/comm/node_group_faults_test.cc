#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/test_node_group.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/test_ranks.h"

namespace canzona::comm::node_group_faults_test {
namespace {

// Whichever level waits for it, or for a rank that waits for it. Another rank
// may give up while this one is still creating its group.
TEST(NodeGroup, ARankThatHasLeftIsNamedToAll) {
  for (const int lost : {0, 3})
    run_test_ranks(4, [&](Communicator& world) {
      std::vector<float> data(4);
      const std::vector<int64_t> counts(4, 1);
      try {
        NodeGroup group = found_nodes(world, {2, 2});
        if (world.rank() == lost) return;
        group.reduce_scatter_v(Reduction::kFp32Sum, bytes_of(data), counts,
                               {.label = "layer 3"});
        FAIL() << "no error";
      } catch (const PeerLost& error) {
        const std::string text = error.what();
        for (const std::string& word :
             {std::string("reduce_scatter_v"), std::string("layer 3"),
              cat("rank ", lost, " has left")})
          EXPECT_NE(text.find(word), std::string::npos) << text;
      }
    });
}

}  // namespace
}  // namespace canzona::comm::node_group_faults_test
