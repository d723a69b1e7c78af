// The algebra of a RemoteEngine (test_remote_engine.h).
#pragma once

#include "canzona/linalg/operand.h"
#include "canzona/linalg/test_remote_memory.h"

namespace canzona {

class RemoteAlgebra final : public Algebra {
 public:
  RemoteAlgebra(RemoteMemory& memory, Algebra& cpu)
      : memory_(memory), cpu_(cpu) {}

  Operand wide(Arena& arena, int64_t rows, int64_t cols, int64_t count,
               bool tall) override {
    const RemoteMemory::Access access(memory_);
    return cpu_.wide(arena, rows, cols, count, tall);
  }
  Operand symmetric(Arena& arena, int64_t rows, int64_t count) override {
    const RemoteMemory::Access access(memory_);
    return cpu_.symmetric(arena, rows, count);
  }
  void load_normalized(Operand& x, const Load& load,
                       const Normalization& normalization) override {
    check(load.source);
    check(load.momentum);
    const RemoteMemory::Access access(memory_);
    cpu_.load_normalized(x, load, normalization);
  }
  void normalize_by_gram(Operand& x, Operand& r, double factor) override {
    const RemoteMemory::Access access(memory_);
    cpu_.normalize_by_gram(x, r, factor);
  }
  void gram(Operand& r, const Operand& x, Half half) override {
    const RemoteMemory::Access access(memory_);
    cpu_.gram(r, x, half);
  }
  void polynomial(Operand& p, const Operand& r, double a, double b, double c,
                  Half half, Readers readers) override {
    const RemoteMemory::Access access(memory_);
    cpu_.polynomial(p, r, a, b, c, half, readers);
  }
  void commuting_product(Operand& d, const Operand& a,
                         const Operand& b) override {
    const RemoteMemory::Access access(memory_);
    cpu_.commuting_product(d, a, b);
  }
  void sandwich(Operand& u, const Operand& p, const Operand& r,
                Operand& scratch) override {
    const RemoteMemory::Access access(memory_);
    cpu_.sandwich(u, p, r, scratch);
  }
  void multiply(Operand& y, const Operand& q, const Operand& x) override {
    const RemoteMemory::Access access(memory_);
    cpu_.multiply(y, q, x);
  }
  void multiply_into(const Store& store, const Operand& q,
                     const Operand& x) override {
    check(store.out);
    const RemoteMemory::Access access(memory_);
    cpu_.multiply_into(store, q, x);
  }

 private:
  template <class Byte>
  void check(const BasicMatrices<Byte>& m) const {
    for (int64_t i = 0; i < m.count; ++i) {
      const std::byte* first = m.at(i).data;
      CANZONA_CHECK(first == nullptr || memory_.owns(first),
                    "a matrix of this process");
    }
  }

  RemoteMemory& memory_;
  Algebra& cpu_;
};

}  // namespace canzona
