#include "canzona/linalg/cuda/graph/recording.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace canzona::linalg::signature_test {
namespace {

TEST(Signature, IsThatOfEqualCalls) {
  std::vector<float> memory(12);
  const auto signature = [&](int64_t rows, float* data) {
    Signature s;
    s.add("axpby");
    s.add(matrices(data, rows, 3));
    s.add(true);
    return s;
  };
  EXPECT_EQ(signature(2, memory.data()), signature(2, memory.data()));
  EXPECT_FALSE(signature(2, memory.data()) == signature(3, memory.data()));
  EXPECT_FALSE(signature(2, memory.data()) == signature(2, memory.data() + 1));
}

TEST(Signature, KnowsTheOrderAndWhereArgumentsEnd) {
  const auto signature = [](std::vector<std::string_view> words) {
    Signature s;
    for (std::string_view word : words) s.add(word);
    return s;
  };
  EXPECT_FALSE(signature({"a", "b"}) == signature({"b", "a"}));
  EXPECT_FALSE(signature({"ab", "c"}) == signature({"a", "bc"}));
  EXPECT_FALSE(signature({"a"}) == signature({"a", ""}));
}

TEST(Signature, OfScatteredMatricesDependsOnEveryPlace) {
  std::vector<float> memory(12);
  std::byte* places[] = {reinterpret_cast<std::byte*>(&memory[0]),
                         reinterpret_cast<std::byte*>(&memory[4])};
  Matrices m = matrices(memory.data(), 2, 2, 2);
  m.places = places;
  Signature before;
  before.add(m);
  places[1] += 16;
  Signature after;
  after.add(m);
  EXPECT_FALSE(before == after);
}

TEST(Signature, ScattersNumbersThatAreClose) {
  std::set<uint64_t> seen;
  for (int64_t i = 0; i < 100000; ++i) {
    Signature s;
    s.add(i);
    s.add(i % 7);
    seen.insert(s.low());
  }
  EXPECT_EQ(seen.size(), 100000U);
}

}  // namespace
}  // namespace canzona::linalg::signature_test
