#include "canzona/data/batches.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "canzona/base/error.h"

namespace canzona::data::batches_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// 0, 1, 2, …
class Counting : public TokenSource {
 public:
  explicit Counting(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  void read(int64_t first, std::span<int32_t> to) const override {
    ASSERT_LE(first + static_cast<int64_t>(to.size()), size_);
    std::iota(to.begin(), to.end(), static_cast<int32_t>(first));
  }
  std::string describe() const override { return "counting"; }
  std::string digest() const override { return ""; }

 private:
  int64_t size_;
};

std::vector<int32_t> train(const Batches& batches, int64_t number,
                           int64_t length) {
  std::vector<int32_t> sequence(static_cast<size_t>(length + 1));
  batches.train(number, sequence);
  return sequence;
}

TEST(Batches, ReadsEverySequenceOncePerEpochAndShufflesAnew) {
  const Counting tokens(1000);
  const Batches batches(tokens, {.length = 10, .seed = 1});
  ASSERT_EQ(batches.num_train(), 94);  // 950 tokens; the last is only a target
  ASSERT_EQ(batches.num_held_out(), 4);
  std::vector<std::vector<int32_t>> firsts(2);
  for (int64_t i = 0; i < 2 * batches.num_train(); ++i) {
    const std::vector<int32_t> sequence = train(batches, i, 10);
    EXPECT_EQ(sequence.back(), sequence.front() + 10);
    EXPECT_LT(sequence.back(), 950);
    firsts[static_cast<size_t>(i / batches.num_train())].push_back(
        sequence.front());
  }
  EXPECT_NE(firsts[0], firsts[1]);
  for (std::vector<int32_t>& epoch : firsts) {
    std::ranges::sort(epoch);
    for (size_t i = 0; i < epoch.size(); ++i)
      EXPECT_EQ(epoch[i], static_cast<int32_t>(10 * i));
  }
}

TEST(Batches, HoldsOutTheLastTokensInPlace) {
  const Counting tokens(1000);
  const Batches batches(tokens, {.length = 10, .seed = 1});
  std::vector<int32_t> sequence(11);
  for (int64_t i = 0; i < batches.num_held_out(); ++i) {
    batches.held_out(i, sequence);
    EXPECT_EQ(sequence.front(), 950 + 10 * i);
    EXPECT_EQ(sequence.back(), 950 + 10 * i + 10);
  }
  EXPECT_THROW(batches.held_out(batches.num_held_out(), sequence),
               InternalError);
}

TEST(Batches, DependsOnTheSeedAlone) {
  const Counting tokens(100'000);
  const Batches a(tokens, {.length = 10, .seed = 1});
  const Batches same(tokens, {.length = 10, .seed = 1});
  const Batches other(tokens, {.length = 10, .seed = 2});
  int equal = 0;
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(train(a, i, 10), train(same, i, 10));
    equal += train(a, i, 10) == train(other, i, 10) ? 1 : 0;
  }
  EXPECT_LT(equal, 3);
}

TEST(Batches, WorksWithOneSequenceOnEachSide) {
  const Counting tokens(4);
  const Batches batches(tokens, {.length = 1, .seed = 1, .held_out = 0.5});
  EXPECT_EQ(batches.num_train(), 1);
  EXPECT_EQ(batches.num_held_out(), 1);
  EXPECT_EQ(train(batches, 0, 1), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(train(batches, 1, 1), (std::vector<int32_t>{0, 1}));
}

TEST(Batches, RefusesTooFewTokensAndOddShares) {
  for (int64_t size : {0, 1, 64, 1299}) {
    const Counting tokens(size);
    EXPECT_THAT([&] { Batches(tokens, {.length = 64}); },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr("counting"), HasSubstr("at least 65"))))
        << size;
  }
  EXPECT_NO_THROW(Batches(Counting(1300), {.length = 64}));
  const Counting tokens(10'000);
  EXPECT_THROW(Batches(tokens, {.length = 0}), UsageError);
  EXPECT_THROW(Batches(tokens, {.length = 8, .held_out = 1}), UsageError);
  EXPECT_THROW(Batches(tokens, {.length = 8, .held_out = 0}), UsageError);
}

}  // namespace
}  // namespace canzona::data::batches_test
