#include "canzona/linalg/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "canzona/base/error.h"

namespace canzona::linalg::arena_test {
namespace {

bool aligned(const std::byte* block) {
  return reinterpret_cast<uintptr_t>(block) % 64 == 0;
}

TEST(Arena, GivesTheSameMemoryToEveryStepOfTheSameShapes) {
  Arena arena;
  std::byte* first[2] = {};
  for (int step = 0; step < 3; ++step) {
    Arena::Scope scope(arena);
    std::byte* small = arena.take(1000);
    std::byte* large = arena.take(5 << 20);
    std::memset(small, 1, 1000);
    std::memset(large, 2, 5 << 20);
    if (step == 1) {
      first[0] = small;
      first[1] = large;
    }
    if (step == 2) {
      EXPECT_EQ(small, first[0]);
      EXPECT_EQ(large, first[1]);
    }
  }
}

TEST(Arena, ReservesNothingMoreAfterTheFirstStep) {
  Arena arena;
  int64_t reserved[3] = {};
  for (int64_t& bytes : reserved) {
    {
      Arena::Scope scope(arena);
      for (int64_t size : {7, 1 << 16, 3 << 20, 64, 1 << 22}) arena.take(size);
    }
    bytes = arena.reserved();
  }
  EXPECT_EQ(reserved[1], reserved[0]);
  EXPECT_EQ(reserved[2], reserved[0]);
}

TEST(Arena, BlocksLieOnCacheLinesAndNeverShareOne) {
  Arena arena;
  Arena::Scope scope(arena);
  std::byte* before = arena.take(0);
  EXPECT_TRUE(aligned(before));
  for (int64_t size : {0, 1, 63, 64, 65, 70000, 3 << 20, 1}) {
    std::byte* block = arena.take(size);
    EXPECT_TRUE(aligned(block)) << size;
    EXPECT_NE(block, before) << size;
    before = block;
  }
}

TEST(Arena, BlocksStayWhereTheyAreWhileMoreIsTaken) {
  Arena arena;
  Arena::Scope scope(arena);
  std::byte* block = arena.take(100);
  std::memset(block, 0x5a, 100);
  for (int i = 0; i < 20; ++i) std::memset(arena.take(1 << 20), i, 1 << 20);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(block[i], std::byte{0x5a});
}

TEST(Arena, AnInnerScopeGivesBackOnlyItsOwn) {
  Arena arena;
  Arena::Scope outer(arena);
  std::byte* kept = arena.take(256);
  std::byte* inner_block = nullptr;
  {
    Arena::Scope inner(arena);
    inner_block = arena.take(512);
    arena.take(1 << 20);
    arena.take(1 << 21);
  }
  EXPECT_EQ(arena.take(512), inner_block);
  EXPECT_NE(kept, inner_block);
}

TEST(Arena, ALargerDemandLaterIsMet) {
  Arena arena;
  for (int64_t size = 1; size < (int64_t{1} << 24); size *= 4) {
    Arena::Scope scope(arena);
    std::memset(arena.take(size), 1, static_cast<size_t>(size));
    std::memset(arena.take(size), 2, static_cast<size_t>(size));
  }
  EXPECT_GE(arena.reserved(), int64_t{1} << 23);
}

TEST(Arena, MatricesOfABatchAllBeginOnACacheLine) {
  Arena arena;
  Arena::Scope scope(arena);
  for (DType dtype : {DType::kFp64, DType::kFp32, DType::kBf16}) {
    const Matrices batch = arena.matrices(dtype, 3, 5, 4);
    EXPECT_EQ(batch.rows, 3);
    EXPECT_EQ(batch.cols, 5);
    EXPECT_EQ(batch.row_stride, 5);
    EXPECT_EQ(batch.count, 4);
    EXPECT_GE(batch.matrix_stride, 15);
    for (int64_t i = 0; i < 4; ++i) EXPECT_TRUE(aligned(batch.at(i).data));
  }
}

TEST(Arena, RefusesToGiveOutsideAScope) {
  Arena arena;
  EXPECT_THROW(arena.take(1), InternalError);
  { Arena::Scope scope(arena); }
  EXPECT_THROW(arena.take(1), InternalError);
}

TEST(Arena, RefusesANegativeSize) {
  Arena arena;
  Arena::Scope scope(arena);
  EXPECT_THROW(arena.take(-1), InternalError);
}

TEST(Arena, ReservesWhatItIsTold) {
  Arena arena;
  arena.reserve(int64_t{3} << 20);
  const int64_t reserved = arena.reserved();
  EXPECT_GE(reserved, int64_t{3} << 20);
  {
    const Arena::Scope scope(arena);
    arena.take(int64_t{2} << 20);
  }
  arena.reserve(10);
  EXPECT_EQ(arena.reserved(), reserved);
}

}  // namespace
}  // namespace canzona::linalg::arena_test
