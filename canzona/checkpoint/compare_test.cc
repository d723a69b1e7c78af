#include "canzona/checkpoint/compare.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "canzona/base/test_folder.h"
#include "canzona/checkpoint/test_sample.h"

namespace canzona::compare_test {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class Comparing : public FolderTest {
 protected:
  // One rank, one tensor "w" of F32 beside others.
  CheckpointReader save(const std::string& name,
                        const std::vector<float>& values,
                        std::vector<BoxSource> others = {}) {
    CheckpointStore store(path(name), "test");
    PendingCheckpoint pending = store.begin(1);
    others.push_back({{"w", DType::kFp32, {std::ssize(values)}},
                      whole_box({std::ssize(values)}),
                      std::as_bytes(std::span(values))});
    pending.commit({write_shard(pending.folder(), {.step = 1}, others)}, "");
    return open_checkpoint(path(name + "/step_00000001"));
  }
};

TEST_F(Comparing, OtherCutsOfOneStateAreEqual) {
  CheckpointStore a(path("a"), "test");
  CheckpointStore b(path("b"), "test");
  save_sample(a, 10, 3);
  save_sample(b, 10, 2);
  save_sample(b, 20, 2);
  const auto open = [&](const std::string& name) {
    return open_checkpoint(path(name));
  };
  const CheckpointDifference same =
      compare_checkpoints(open("a/step_00000010"), open("b/step_00000010"), 2);
  EXPECT_TRUE(same.equal());
  EXPECT_EQ(same.num_equal, 5);
  const CheckpointDifference other =
      compare_checkpoints(open("a/step_00000010"), open("b/step_00000020"), 1);
  EXPECT_THAT(other.different, SizeIs(4));
  EXPECT_EQ(other.num_equal, 1);
}

TEST_F(Comparing, DifferencesAreCounted) {
  const CheckpointReader a = save("a", {1, 2, 3, 4});
  const CheckpointDifference d =
      compare_checkpoints(a, save("b", {1, 2.5F, 3, 3}), 1);
  ASSERT_THAT(d.different, SizeIs(1));
  EXPECT_EQ(d.different[0].name, "w");
  EXPECT_EQ(d.different[0].elements, 4);
  EXPECT_EQ(d.different[0].different, 2);
  EXPECT_EQ(d.different[0].largest, 1.0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const CheckpointDifference n =
      compare_checkpoints(a, save("c", {nan, 2, 3, 9}), 1);
  EXPECT_FALSE(std::isfinite(n.different[0].largest));
}

TEST_F(Comparing, NamesAndKindsThatDifferAreListed) {
  const std::vector<float> two = {1, 2};
  const BoxSource extra{{"extra", DType::kFp32, {2}},
                        whole_box({2}),
                        std::as_bytes(std::span(two))};
  const CheckpointDifference d =
      compare_checkpoints(save("a", {1, 2, 3}, {extra}), save("b", {1, 2}), 1);
  EXPECT_THAT(d.only_first, ElementsAre("extra"));
  EXPECT_THAT(d.only_second, SizeIs(0));
  ASSERT_THAT(d.different, SizeIs(1));
  EXPECT_EQ(d.different[0].what, "F32 [3] and F32 [2]");
}

}  // namespace
}  // namespace canzona::compare_test
