// The CPU's part in the engine of another device: a CPU engine, and copies in
// host memory of what a call works on.
//
//   host_side().call(&Engine::sort, Out(orders), values, falling);
//
//   HostSide& here = host_side();
//   here.run([&](Engine& cpu) {
//     cpu.sort(here.out(orders), here.in(values), falling);   // the same
//   });
//
// in() returns a copy of what the call reads, out() a place for what it writes
// completely, both() a copy that it changes; when the work has ended, the
// device gets back what was written, and nothing between rows. Views of the
// same elements share a copy; null stays null. Everything waits for the device.
// Nothing is allocated after the first use with given shapes. The engine's
// thread alone may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/linalg/matrix.h"
#include "canzona/linalg/memory.h"
#include "canzona/linalg/stages.h"

namespace canzona::linalg {

// Marks an argument of HostSide::call() that the call writes completely.
template <class View>
struct Out {
  explicit Out(View view) : there(view) {}
  View there;
};

class HostSide {
 public:
  explicit HostSide(Engine& device);

  // Calls work(cpu). The functions below may be called inside alone, before the
  // CPU engine is.
  template <class Work>
  void run(const Work& work) {
    const Arena::Scope scope(cpu_->arena());
    copies_.clear();
    work(*cpu_);
    put_back();
  }

  // Makes one call of the CPU engine with copies of its matrices and orders.
  template <class... Parameters, class... Arguments>
  void call(void (Engine::*method)(Parameters...),
            const Arguments&... arguments) {
    run([&](Engine& cpu) { (cpu.*method)(copied(arguments)...); });
  }

  ConstMatrices in(ConstMatrices there);
  Matrices both(Matrices there);
  Matrices out(Matrices there);
  ConstOrders in(ConstOrders there);
  Orders out(Orders there);
  ConstRun in(ConstRun there, int64_t count);
  Run both(Run there, int64_t count);
  Run out(Run there, int64_t count);
  const float* in(const float* there, int64_t count);
  uint16_t* out(uint16_t* there, int64_t count);

 private:
  // Rows of bytes in the device's memory; distances are in bytes, too.
  struct Layout {
    int64_t row_bytes = 0;
    int64_t rows = 1;
    int64_t row_stride = 0;
    int64_t count = 1;
    int64_t matrix_stride = 0;

    bool operator==(const Layout&) const = default;
    // Returns the distance of matrices in the copy, whose rows have no gaps.
    int64_t matrix_stride_here() const;
  };
  struct Copy {
    const std::byte* there = nullptr;
    Layout layout{};
    std::byte* here = nullptr;
    bool is_fetched = false;
    std::byte* back = nullptr;  // `there`, if it is written
  };

  ConstMatrices copied(const ConstMatrices& there) { return in(there); }
  Matrices copied(const Matrices& there) { return both(there); }
  ConstOrders copied(const ConstOrders& there) { return in(there); }
  template <class View>
  View copied(const Out<View>& there) {
    return out(there.there);
  }
  template <class Other>
  const Other& copied(const Other& other) {
    return other;
  }

  template <class Byte>
  static Layout layout_of(const BasicMatrices<Byte>& there);
  template <class Byte>
  static BasicMatrices<Byte> as_copied(BasicMatrices<Byte> there, Byte* here);
  static Layout flat(int64_t bytes) { return {.row_bytes = bytes}; }

  const std::byte* read(const std::byte* there, const Layout& layout);
  std::byte* write(std::byte* there, const Layout& layout);
  Copy& copy_of(const std::byte* there, const Layout& layout);
  void put_back();

  Engine& device_;
  std::unique_ptr<Engine> cpu_;
  std::vector<Copy> copies_;
};

}  // namespace canzona::linalg
