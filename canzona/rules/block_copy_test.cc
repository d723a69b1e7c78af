#include "canzona/rules/runs.h"

#include <gmock/gmock.h>

#include <numeric>

namespace canzona::rules::block_copy_test {
namespace {

using ::testing::ElementsAre;
using Shape = std::vector<int64_t>;

std::vector<float> counting(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

std::vector<float> block_of(const Shape& dims, int64_t count, int64_t max_dim,
                            int64_t number) {
  const auto engine = make_cpu_engine();
  const Blocking cut(AxisSizes(dims), max_dim);
  const TensorBlock block = cut.block(number);
  int64_t size = 1;
  for (int64_t side : block.sizes.span()) size *= side;
  const std::vector<float> tensor = counting(count);
  std::vector<float> room(static_cast<size_t>(size));
  copy_out(*engine, run_of(room.data()), run_of(tensor.data()), cut, block);
  return room;
}

TEST(BlockCopy, TakesABlockOfAMatrix) {
  EXPECT_THAT(block_of({5, 3}, 15, 2, 0), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(block_of({5, 3}, 15, 2, 3), ElementsAre(8, 11));
  EXPECT_THAT(block_of({5, 3}, 15, 2, 4), ElementsAre(12, 13));
}

TEST(BlockCopy, TakesABlockOfAVector) {
  EXPECT_THAT(block_of({5}, 5, 2, 1), ElementsAre(2, 3));
  EXPECT_THAT(block_of({5}, 5, 2, 2), ElementsAre(4));
}

// A 3 x 2 x 3 tensor cut at 2; its last block begins at 2, 0, 2.
TEST(BlockCopy, TakesABlockOfATensor) {
  EXPECT_THAT(block_of({3, 2, 3}, 18, 2, 0),
              ElementsAre(0, 1, 3, 4, 6, 7, 9, 10));
  EXPECT_THAT(block_of({3, 2, 3}, 18, 2, 3), ElementsAre(14, 17));
}

TEST(BlockCopy, BlocksPutBackMakeTheTensor) {
  const auto engine = make_cpu_engine();
  for (const Shape& dims :
       {Shape{7}, Shape{5, 3}, Shape{3, 4, 5}, Shape{3, 2, 5, 3}}) {
    const Blocking cut(AxisSizes(dims), 2);
    int64_t count = 1;
    for (int64_t side : dims) count *= side;
    const std::vector<float> tensor = counting(count);
    std::vector<float> room(tensor.size());
    std::vector<float> copy(tensor.size(), -1.0F);
    for (int64_t b = 0; b < cut.num_blocks(); ++b) {
      copy_out(*engine, run_of(room.data()), run_of(tensor.data()), cut,
               cut.block(b));
      const float* from = room.data();
      copy_back(*engine, run_of(copy.data()), run_of(from), cut, cut.block(b));
    }
    EXPECT_EQ(copy, tensor);
  }
}

}  // namespace
}  // namespace canzona::rules::block_copy_test
