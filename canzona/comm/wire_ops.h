// A Reduction says what a collective adds: the numbers in memory, on the wire,
// and the operation. Moves (gathers, all-to-all, broadcast) count plain bytes.
//
//   world.all_reduce(Reduction::kFp32Sum, bytes_of(gradients));
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace canzona {

enum class Reduction {
  kFp32Sum,
  // fp32 in memory, bf16 on the wire: every piece is rounded, the rank's own
  // too, and the pieces are added in fp32.
  kFp32SumOfBf16,
  kInt64Sum,  // modulo 2^64
  kInt64Max,
  kInt128Sum,  // two words, the lower first; modulo 2^128
};

constexpr int64_t element_bytes(Reduction reduction) {
  switch (reduction) {
    case Reduction::kFp32Sum:
    case Reduction::kFp32SumOfBf16:
      return 4;
    case Reduction::kInt64Sum:
    case Reduction::kInt64Max:
      return 8;
    case Reduction::kInt128Sum:
      break;
  }
  return 16;
}

constexpr int64_t wire_bytes(Reduction reduction) {
  return reduction == Reduction::kFp32SumOfBf16 ? 2 : element_bytes(reduction);
}

// True if elements have another form on the wire than in memory.
constexpr bool is_narrowed(Reduction reduction) {
  return wire_bytes(reduction) != element_bytes(reduction);
}

constexpr std::string_view to_string(Reduction reduction) {
  switch (reduction) {
    case Reduction::kFp32Sum:
      return "fp32 sum";
    case Reduction::kFp32SumOfBf16:
      return "fp32 sum of bf16";
    case Reduction::kInt64Sum:
      return "int64 sum";
    case Reduction::kInt64Max:
      return "int64 max";
    case Reduction::kInt128Sum:
      break;
  }
  return "int128 sum";
}

// WireOps are what a communicator does to memory. It knows no device: whoever
// owns the memory says how it is copied, added and converted.
//
//   Communicator world(std::move(transport), cpu_wire_ops(), options, "world");
//
// A device derives its own. Every function has ended when it returns, but for
// those of a lane (lane.h), may be called by several threads at once, and gives
// the same bits for an element whatever its place and the number of its
// neighbours.

class WireOps {
 public:
  virtual ~WireOps() = default;

  // True if the memory is the host's, which any library can read.
  virtual bool is_host() const { return true; }

  // Memory for pieces on their way; 64-byte aligned.
  virtual std::byte* allocate(int64_t bytes) const = 0;
  virtual void release(std::byte* memory) const = 0;

  // Either side may also be plain memory of the host.
  virtual void copy(std::byte* to, const std::byte* from,
                    int64_t bytes) const = 0;

  // sum = a + b (or their maximum), as numbers in memory; `sum` may be a or b.
  virtual void add(Reduction reduction, std::byte* sum, const std::byte* a,
                   const std::byte* b, int64_t count) const = 0;

  // From memory to the wire's form and back; only if is_narrowed().
  virtual void narrow(Reduction reduction, std::byte* wire,
                      const std::byte* from, int64_t count) const = 0;
  virtual void widen(Reduction reduction, std::byte* to, const std::byte* wire,
                     int64_t count) const = 0;

  // Numbers of two words as four limbs of 32 bits, the lowest first, each in a
  // word of its own: sums of limbs, word by word, are limbs of sums as long as
  // there are fewer than 2^32 of them. from_limbs() carries. False if there is
  // no such way.
  virtual bool to_limbs(std::byte* limbs, const std::byte* from,
                        int64_t count) const {
    static_cast<void>(limbs);
    static_cast<void>(from);
    static_cast<void>(count);
    return false;
  }
  virtual void from_limbs(std::byte* to, const std::byte* limbs,
                          int64_t count) const {
    static_cast<void>(to);
    static_cast<void>(limbs);
    static_cast<void>(count);
  }

  // Does the work of tree_sum() below in one go; `sum` may be where a piece
  // lies that is not narrowed. False if there is no quicker way than one
  // addition after the other.
  virtual bool sum_at_once(Reduction reduction,
                           std::span<const std::byte* const> pieces,
                           int64_t count, std::byte* sum) const {
    static_cast<void>(reduction);
    static_cast<void>(pieces);
    static_cast<void>(count);
    static_cast<void>(sum);
    return false;
  }
  // The same of so many pieces that have the form of memory, where they lie:
  // each is rounded as it would be on its way. `sum` may be where a piece lies.
  virtual bool sums_in_place(Reduction reduction, int num_pieces) const {
    static_cast<void>(reduction);
    static_cast<void>(num_pieces);
    return false;
  }
  virtual void sum_in_place(Reduction reduction,
                            std::span<const std::byte* const> pieces,
                            int64_t count, std::byte* sum) const;
};

// For memory of the host. Lives as long as the program.
const WireOps& cpu_wire_ops();

// The one order in which pieces of several ranks are added: a balanced binary
// tree over rank numbers, neighbours first, an odd one carried up.
//
//   7 pieces:  ((0 + 1) + (2 + 3)) + ((4 + 5) + 6)
//
// Every element is added on its own, so that its bits depend neither on the
// segment it travels in nor on who adds it. The reference, one rank that has
// all pieces, calls the same function.
//
//   std::vector<std::byte> scratch(tree_scratch_bytes(reduction, 7, count));
//   tree_sum(cpu_wire_ops(), reduction, pieces, count, sum, scratch.data());

int64_t tree_scratch_bytes(Reduction reduction, int num_pieces, int64_t count);

// The pieces have the form of the wire, the sum that of memory. `sum` and
// `scratch` overlap no piece.
void tree_sum(const WireOps& ops, Reduction reduction,
              std::span<const std::byte* const> pieces, int64_t count,
              std::byte* sum, std::byte* scratch);

}  // namespace canzona
