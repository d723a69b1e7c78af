#include "canzona/runtime/engine_lanes.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/run_ranks.h"

namespace canzona::runtime::engine_wire_ops_test {
namespace {

const EngineWireOps& ops() {
  static const EngineWireOps all(memory_ops("cpu"));
  return all;
}

// Arbitrary bits, but no NaN where they are added.
std::vector<uint64_t> bits_for(Reduction reduction, uint64_t seed,
                               int64_t bytes) {
  std::vector<uint64_t> words;
  for (int64_t i = 0; i < (bytes + 7) / 8; ++i) {
    uint64_t word = bits_at(seed, static_cast<uint64_t>(i));
    if (element_bytes(reduction) == 4) word &= 0xbfffffffbfffffffU;
    words.push_back(word);
  }
  return words;
}

constexpr auto kReductions = {Reduction::kFp32Sum, Reduction::kFp32SumOfBf16,
                              Reduction::kInt64Sum, Reduction::kInt64Max};

std::vector<uint64_t> sum_by(const WireOps& by, Reduction reduction,
                             std::vector<uint64_t> a,
                             const std::vector<uint64_t>& b, int64_t offset,
                             int64_t count) {
  std::byte* place = bytes_of(a).data() + offset * element_bytes(reduction);
  by.add(reduction, place, place,
         bytes_of(b).data() + offset * element_bytes(reduction), count);
  return a;
}

TEST(EngineWireOps, AddAsThoseOfTheCommunicator) {
  for (const Reduction reduction : kReductions)
    for (const int64_t offset : {0, 1, 3, 17, 63})
      for (const int64_t count : {0, 1, 2, 7, 31, 1000}) {
        const int64_t bytes = (offset + count + 2) * element_bytes(reduction);
        const auto a = bits_for(reduction, 1, bytes);
        const auto b = bits_for(reduction, 2, bytes);
        EXPECT_EQ(sum_by(ops(), reduction, a, b, offset, count),
                  sum_by(cpu_wire_ops(), reduction, a, b, offset, count))
            << to_string(reduction) << " " << count << " from " << offset;
      }
}

TEST(EngineWireOps, ConvertAsThoseOfTheCommunicator) {
  const auto reduction = Reduction::kFp32SumOfBf16;
  constexpr int64_t kCount = 2000;
  std::vector<float> from;
  for (int64_t i = 0; i < kCount; ++i)
    from.push_back(std::bit_cast<float>(
        static_cast<uint32_t>(bits_at(5, static_cast<uint64_t>(i)))));
  for (const uint32_t bits :
       {0x7f800000U, 0xff800001U, 0x7fffffffU, 0x7f7fffffU, 0x80000000U,
        0x00000001U, 0x3f808000U})
    from[bits % kCount] = std::bit_cast<float>(bits);
  std::vector<uint16_t> wire(kCount), expected_wire(kCount);
  ops().narrow(reduction, bytes_of(wire).data(), bytes_of(from).data(), kCount);
  cpu_wire_ops().narrow(reduction, bytes_of(expected_wire).data(),
                        bytes_of(from).data(), kCount);
  EXPECT_EQ(wire, expected_wire);
  std::vector<uint32_t> to(kCount), expected(kCount);
  ops().widen(reduction, bytes_of(to).data(), bytes_of(wire).data(), kCount);
  cpu_wire_ops().widen(reduction, bytes_of(expected).data(),
                       bytes_of(wire).data(), kCount);
  EXPECT_EQ(to, expected);
  EXPECT_THROW(ops().narrow(Reduction::kFp32Sum, bytes_of(wire).data(),
                            bytes_of(from).data(), 1),
               InternalError);
  EXPECT_THROW(ops().widen(Reduction::kInt64Sum, bytes_of(to).data(),
                           bytes_of(wire).data(), 1),
               InternalError);
}

TEST(EngineWireOps, AllocateAlignedAndCopy) {
  for (const int64_t bytes : {0, 1, 1000, 1 << 22}) {
    std::byte* memory = ops().allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0U);
    std::vector<std::byte> there(static_cast<size_t>(bytes), std::byte{7});
    std::vector<std::byte> back(there.size());
    ops().copy(memory, there.data(), bytes);
    ops().copy(back.data(), memory, bytes);
    EXPECT_EQ(back, there);
    ops().release(memory);
  }
}

TEST(EngineWireOps, ServeAGroupSplitOffAWorldOfTheHost) {
  for (const bool bf16 : {false, true})
    run_ranks(4, [&](Communicator& world) {
      const auto group = world.split(0, world.rank(), "device", {}, &ops());
      constexpr int64_t kCount = 1000;
      auto data = test_piece(world.rank(), kCount);
      group->all_reduce(bf16 ? Reduction::kFp32SumOfBf16 : Reduction::kFp32Sum,
                        bytes_of(data));
      for (int64_t i = 0; i < kCount; ++i)
        EXPECT_TRUE(
            same_bits(data[static_cast<size_t>(i)], oracle_at(4, i, bf16)))
            << i;
    });
}

}  // namespace
}  // namespace canzona::runtime::engine_wire_ops_test
