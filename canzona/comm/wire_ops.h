// A Reduction says how a collective reduces: the type in memory, the type on
// the wire, and the operation. Gathers, all-to-all and broadcast move plain
// bytes.
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
  // fp32 in memory, bf16 on the wire: every piece is rounded, including the
  // rank's own, and the pieces are added in fp32.
  kFp32SumOfBf16,
  kInt64Sum,  // modulo 2^64
  kInt64Max,
};

constexpr int64_t element_bytes(Reduction reduction) {
  switch (reduction) {
    case Reduction::kFp32Sum:
    case Reduction::kFp32SumOfBf16:
      return 4;
    case Reduction::kInt64Sum:
    case Reduction::kInt64Max:
      break;
  }
  return 8;
}

constexpr int64_t wire_bytes(Reduction reduction) {
  return reduction == Reduction::kFp32SumOfBf16 ? 2 : element_bytes(reduction);
}

// Returns true if elements have a different type on the wire than in memory.
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
      break;
  }
  return "int64 max";
}

// WireOps are the memory operations of a communicator, which knows no devices:
// the owner of the memory says how it is copied, added and converted.
//
//   Communicator world(std::move(transport), cpu_wire_ops(), options, "world");
//
// A device derives its own class. Except for those of a lane (transport.h),
// functions are complete when they return. They may be called by several
// threads at once and give the same bits for an element whatever its position
// and the number of elements.
class WireOps {
 public:
  virtual ~WireOps() = default;

  // Returns true for host memory, which any library can read.
  virtual bool is_host() const { return true; }

  // Allocates 64-byte aligned memory for pieces in transit.
  virtual std::byte* allocate(int64_t bytes) const = 0;
  virtual void release(std::byte* memory) const = 0;

  // Either side may also be ordinary host memory.
  virtual void copy(std::byte* to, const std::byte* from,
                    int64_t bytes) const = 0;

  // Computes sum = a + b (or their maximum) in memory form; `sum` may be a or
  // b.
  virtual void add(Reduction reduction, std::byte* sum, const std::byte* a,
                   const std::byte* b, int64_t count) const = 0;

  // Convert from memory form to wire form and back; only if is_narrowed().
  virtual void narrow(Reduction reduction, std::byte* wire,
                      const std::byte* from, int64_t count) const = 0;
  virtual void widen(Reduction reduction, std::byte* to, const std::byte* wire,
                     int64_t count) const = 0;

  // Does the work of tree_sum() below in one pass; `sum` may be one of the
  // pieces if they are not narrowed. Returns false if there is nothing faster
  // than one addition after the other.
  virtual bool sum_at_once(Reduction /*reduction*/,
                           std::span<const std::byte* const> /*pieces*/,
                           int64_t /*count*/, std::byte* /*sum*/) const {
    return false;
  }
  // The same for this many pieces in memory form, read in place: each is
  // rounded as it would be on the wire. `sum` may be one of the pieces.
  virtual bool sums_in_place(Reduction /*reduction*/,
                             int /*num_pieces*/) const {
    return false;
  }
  virtual void sum_in_place(Reduction reduction,
                            std::span<const std::byte* const> pieces,
                            int64_t count, std::byte* sum) const;
};

// For host memory. Lives as long as the program.
const WireOps& cpu_wire_ops();

// Adds pieces of several ranks in the order of their numbers
// (base/sum_order.h).
//
// Every element is added independently, so that its bits depend neither on the
// segment it travels in nor on which rank adds it. The reference, a single rank
// that has all pieces, calls the same function.
//
//   std::vector<std::byte> scratch(tree_scratch_bytes(reduction, 7, count));
//   tree_sum(cpu_wire_ops(), reduction, pieces, count, sum, scratch.data());

int64_t tree_scratch_bytes(Reduction reduction, int num_pieces, int64_t count);

// The pieces are in wire form, the sum in memory form. `sum` and `scratch` must
// not overlap any piece.
void tree_sum(const WireOps& ops, Reduction reduction,
              std::span<const std::byte* const> pieces, int64_t count,
              std::byte* sum, std::byte* scratch);

}  // namespace canzona
