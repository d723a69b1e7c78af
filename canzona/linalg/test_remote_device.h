// For tests: a device whose memory only its engine can access, and whose engine
// implements what it must and nothing else. The pages cannot be read or written
// while no call of the engine runs, so code that touches device memory directly
// crashes here, as it would on a device.
//
//   RemoteMemory memory;
//   std::byte* there = memory.allocate(64);   // *there kills the process
//   { const RemoteMemory::Access access(memory); … }   // the engine's work
//
// One thread at a time.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <type_traits>

#include "canzona/base/check.h"
#include "canzona/base/rooms.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/memory.h"
#include "canzona/linalg/operand.h"

namespace canzona::linalg {

class RemoteMemory final : public Memory {
 public:
  // Makes all of it accessible while it lives; may be nested.
  class Access {
   public:
    explicit Access(RemoteMemory& memory) : memory_(memory) {
      if (memory_.depth_++ == 0) memory_.protect(PROT_READ | PROT_WRITE);
    }
    ~Access() {
      if (--memory_.depth_ == 0) memory_.protect(PROT_NONE);
    }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    RemoteMemory& memory_;
  };

  std::byte* allocate(int64_t bytes) override {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t size = (bytes + page) / page * page;
    void* memory = mmap(nullptr, static_cast<size_t>(size),
                        depth_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    auto* first = static_cast<std::byte*>(memory);
    blocks_[first] = size;
    return first;
  }

  void release(std::byte* memory) override {
    const auto block = blocks_.find(memory);
    CANZONA_CHECK(block != blocks_.end(), "memory of somebody else");
    munmap(memory, static_cast<size_t>(block->second));
    blocks_.erase(block);
  }

  bool owns(const std::byte* place) const {
    auto block = blocks_.upper_bound(const_cast<std::byte*>(place));
    if (block == blocks_.begin()) return false;
    --block;
    return place < block->first + block->second;
  }

 private:
  void protect(int access) {
    for (const auto& [first, size] : blocks_)
      mprotect(first, static_cast<size_t>(size), access);
  }

  std::map<std::byte*, int64_t> blocks_;
  int depth_ = 0;
};

// The algebra of the device.
class RemoteAlgebra final : public Algebra {
 public:
  RemoteAlgebra(RemoteMemory& memory, Algebra& cpu)
      : memory_(memory), cpu_(cpu) {}

  Operand wide(Arena& arena, int64_t rows, int64_t cols, int64_t count,
               bool tall, const Strips& strips) override {
    const RemoteMemory::Access access(memory_);
    return cpu_.wide(arena, rows, cols, count, tall, strips);
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

// The least that a device can be: everything but the pure functions is left to
// the defaults of Engine. It refuses memory of this process, and counts the
// calls that a program has to wait for.
//
//   MinimalEngine engine(3);
//   rule->transform(engine, step, batch);   // crashes if it reads directly
//
// Its bits are those of a CPU engine. Algebras take one matrix at a time, so a
// rule that uses them needs a width of 1. For programs that reach into memory
// themselves, as collectives do, it can be a device with host memory.
struct RemoteMemoryHolder {
  RemoteMemory remote_;
};

class MinimalEngine : private RemoteMemoryHolder, public Engine {
 public:
  enum class Reach { kEngine, kAnybody };
  explicit MinimalEngine(int64_t width, Reach reach = Reach::kEngine)
      : Engine(reach == Reach::kEngine ? remote_ : host_memory()),
        width_(width),
        reach_(reach) {}

  int64_t waits() const { return waits_; }

  std::string kind() const override {
    return reach_ == Reach::kEngine ? "remote" : "cpu";
  }
  const MemoryOps& memory_ops() const override { return cpu_memory_ops(); }
  std::string describe() const override { return cpu_->describe(); }
  int64_t batch_width() const override { return width_; }
  Algebra& algebra(DType dtype) override {
    if (reach_ == Reach::kAnybody) return cpu_->algebra(dtype);
    auto& own = algebras_[static_cast<size_t>(dtype)];
    if (!own)
      own = std::make_unique<RemoteAlgebra>(remote_, cpu_->algebra(dtype));
    return *own;
  }

  void upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    const Call call(*this, kWaits, to);
    cpu_->upload(to, from, bytes);
  }
  void download(std::byte* to, const std::byte* from, int64_t bytes) override {
    const Call call(*this, kWaits, from);
    cpu_->download(to, from, bytes);
  }
  void set_zero(std::byte* to, int64_t bytes) override {
    const Call call(*this, kIssued, to);
    cpu_->set_zero(to, bytes);
  }
  void copy(Matrices to, ConstMatrices from) override {
    const Call call(*this, kIssued, to, from);
    cpu_->copy(to, from);
  }
  void synchronize() override { ++waits_; }

  void product(Matrices c, double alpha, ConstMatrices a, Op op_a,
               ConstMatrices b, Op op_b, double beta) override {
    const Call call(*this, kIssued, c, a, b);
    cpu_->product(c, alpha, a, op_a, b, op_b, beta);
  }
  void symmetric_product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                         double beta) override {
    const Call call(*this, kIssued, c, a);
    cpu_->symmetric_product(c, alpha, a, op_a, beta);
  }

 protected:
  static constexpr bool kWaits = true;
  static constexpr bool kIssued = false;

  // Opens the memory for one call, whose operands must lie in it.
  class Call {
   public:
    template <class... Views>
    Call(MinimalEngine& engine, bool waits, const Views&... views)
        : access_(engine.remote_) {
      if (waits) ++engine.waits_;
      (engine.check(views), ...);
    }

   private:
    RemoteMemory::Access access_;
  };

  // A view, or an address.
  template <class View>
  void check(const View& view) const {
    if (reach_ == Reach::kAnybody) return;
    const std::byte* place = nullptr;
    if constexpr (std::is_pointer_v<View>)
      place = reinterpret_cast<const std::byte*>(view);
    else
      place = reinterpret_cast<const std::byte*>(view.data);
    CANZONA_CHECK(place == nullptr || remote_.owns(place),
                  "memory of this process given to the engine");
  }

  Engine& cpu() { return *cpu_; }

 private:
  int64_t width_;
  Reach reach_;
  int64_t waits_ = 0;
  std::unique_ptr<Engine> cpu_ = make_cpu_engine();
  std::unique_ptr<Algebra> algebras_[4];
};

}  // namespace canzona::linalg
