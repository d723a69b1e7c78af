#include "canzona/plan/schedule/modules.h"

#include <gtest/gtest.h>

namespace canzona::plan::slot_pool_test {
namespace {

TEST(SlotPool, GivesSlotsOfEachKindInTurn) {
  SlotPool pool(2, 1);
  EXPECT_EQ(pool.size(), 3);
  EXPECT_EQ(pool.next(false), 0);
  EXPECT_EQ(pool.next(true), 2);
  EXPECT_EQ(pool.next(false), 1);
  EXPECT_EQ(pool.next(false), 0);
  EXPECT_EQ(pool.next(true), 2);
  EXPECT_TRUE(pool.is_of(1, false));
  EXPECT_FALSE(pool.is_of(2, false));
  EXPECT_FALSE(pool.is_of(-1, false));
}

TEST(SlotPool, PassesOverThoseThatAreTaken) {
  SlotPool pool(3, 0);
  EXPECT_EQ(pool.take_free(false), 0);
  EXPECT_EQ(pool.take_free(false), 1);
  EXPECT_EQ(pool.take_free(false), 2);
  EXPECT_FALSE(pool.has_free(false));
  pool.release(1);
  EXPECT_EQ(pool.take_free(false), 1);
  pool.release(0);
  pool.release(2);
  EXPECT_EQ(pool.num_taken(), 1);
  EXPECT_EQ(pool.most_taken(false), 3);
  EXPECT_EQ(pool.most_taken(true), 0);
}

}  // namespace
}  // namespace canzona::plan::slot_pool_test
