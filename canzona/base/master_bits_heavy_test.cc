#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "canzona/base/test_master_bits.h"

namespace canzona {
namespace {

TEST(MasterBits, RestoreEveryNumber) {
  constexpr uint64_t kAll = uint64_t{1} << 32, kPart = kAll / 16;
  std::atomic<uint64_t> next = 0, wrong = 0, one_wrong = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (uint64_t begin; (begin = next.fetch_add(kPart)) < kAll;)
        for (uint64_t i = begin; i < begin + kPart; ++i)
          if (!is_right_master(static_cast<uint32_t>(i))) {
            ++wrong;
            one_wrong = i;
          }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0U) << "one of them has the bits " << one_wrong;
}

}  // namespace
}  // namespace canzona
