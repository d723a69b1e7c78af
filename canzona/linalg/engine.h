// A lane of a device: memory-side operations on matrices, issued in order.
//
//   auto lane = make_cpu_engine();
//   Arena::Scope scope(lane->arena());
//   lane->symmetric_product(gram, 1.0, x, Op::kNone, 0.0);
//
// One thread at a time uses an engine; several engines work side by side, and
// what one matrix gives depends neither on them nor on its batch. Nothing is
// allocated after the first use with given shapes. Views are of the engine's
// memory; inputs and outputs overlap only where it is said. Real types are
// fp32 and fp64, all views of a call having the same.
//
// A device may still be at work when a call returns. Results that come back to
// this process (a span of results, a download) are there when the call returns;
// such calls wait, and have no place in work that is repeated.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/linalg/gradient_numbers.h"
#include "canzona/linalg/matrix.h"
#include "canzona/linalg/memory.h"
#include "canzona/linalg/operand.h"
#include "canzona/linalg/stages.h"
#include "canzona/linalg/wide_sum.h"

namespace canzona {

enum class Op { kNone, kTranspose };

// A device multiplies fp32 matrices with fp32 products, or faster with each
// number as a sum of bf16 ones: of two, three of four products taken, which
// leaves relative errors of about 1e-5; or of three, six of nine products
// taken, which leaves those of fp32's own sums.
enum class Products { kPlain, kBf16x3, kBf16x6 };

// Permutations in the engine's memory, `length` entries each: matrix i of a
// batch of `matrices` takes number i·count/matrices.
struct Orders {
  int64_t* data = nullptr;
  int64_t length = 0;
  int64_t count = 1;
};
struct ConstOrders {
  const int64_t* data = nullptr;
  int64_t length = 0;
  int64_t count = 1;
  ConstOrders(Orders o)  // NOLINT: implicit
      : data(o.data), length(o.length), count(o.count) {}
  ConstOrders(std::span<const int64_t> one)  // NOLINT: implicit
      : data(one.data()), length(static_cast<int64_t>(one.size())) {}
  ConstOrders(const std::vector<int64_t>& one)  // NOLINT: implicit
      : ConstOrders(std::span<const int64_t>(one)) {}
};

class Engine;

// A number that work leaves for this process: each wait is for one post.
class Notice {
 public:
  virtual ~Notice() = default;
  // `number` is in the engine's memory. May be repeated.
  virtual void post(Engine& engine, const int32_t* number) = 0;
  virtual int32_t wait() = 0;
};

class Engine {
 public:
  explicit Engine(Memory& memory) : memory_(memory), arena_(memory) {}
  virtual ~Engine() = default;

  // "cpu", and what computes: "OpenBLAS 0.3.21 SkylakeX, bf16 by amx".
  virtual std::string kind() const = 0;
  virtual std::string describe() const = 0;
  Memory& memory() { return memory_; }
  Arena& arena() { return arena_; }
  // What collectives do to this engine's memory.
  virtual const MemoryOps& memory_ops() const = 0;

  // The number of matrices of equal shape that may be handed over at once to an
  // algebra, and are best handed over to everything else.
  virtual int64_t batch_width() const = 0;

  // Between memory of this process and the engine's; waits.
  virtual void upload(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void download(std::byte* to, const std::byte* from,
                        int64_t bytes) = 0;
  virtual void set_zero(std::byte* to, int64_t bytes) = 0;

  // Order of work. Work that was issued to `other` before happens before work
  // that is issued here from now on.
  virtual void wait_for(Engine& other) = 0;
  virtual std::unique_ptr<Event> record() = 0;
  // The same with events that are made once, and lines of work beside this one.
  // No lane where work has ended when a call returns: events are reached then.
  virtual std::unique_ptr<Event> make_event();
  // One that tells when it was reached (Event::seconds_after).
  virtual std::unique_ptr<Event> make_timed_event() { return make_event(); }
  virtual void record_in(Event&) {}
  virtual void wait_until(const Event&) {}
  virtual std::unique_ptr<MemoryLane> make_lane() { return nullptr; }
  virtual std::unique_ptr<Notice> make_notice() = 0;
  virtual void synchronize() = 0;
  // Work that takes this long and does nothing, in the place of a trainer's.
  virtual void idle(double seconds);

  // Work that is done again and again, each time the same calls on the same
  // memory with other scalars. A device that can capture work does so at the
  // first time and replays it later, with the same bits; work that asks for
  // results is simply done. Engines that wait_for this one inside, and that it
  // waits for, take part. The work may be called more often than it is done, so
  // it changes nothing of this process but arenas.
  virtual void repeat(const std::function<void()>& work) { work(); }
  // Does the work if the number is 0: `flag` is in the engine's memory, and
  // nobody waits for it where the work is being repeated.
  virtual void if_zero(const int32_t* flag,
                       const std::function<void()>& work) = 0;
  // The same for element-wise calls (copies, conversions, stages, scale_by) and
  // find_nonfinite, each of which looks at the number itself; other calls are
  // simply done. Nobody waits, nothing is captured, and the memory may be
  // another each time.
  virtual void guard(const int32_t* flag, const std::function<void()>& work) {
    if_zero(flag, work);
  }

  // The time that the device spent on the calls of `work`, by their kind,
  // longest first. Nothing where only the clock of this process could tell.
  struct StageTime {
    std::string stage;
    int64_t calls = 0;
    double seconds = 0;
  };
  virtual std::vector<StageTime> profile(const std::function<void()>& work) {
    work();
    return {};
  }

  // Newton–Schulz in fp64, fp32, or 16 bits with fp32 sums. UsageError if the
  // device has no such.
  virtual Algebra& algebra(DType dtype) = 0;

  // Chooses the products below, until it is called again; kPlain at first. A
  // wish: an engine without faster ones ignores it.
  virtual void set_products(Products) {}

  // C = alpha·op(A)·op(B) + beta·C.
  virtual void product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                       ConstMatrices b, Op op_b, double beta) = 0;
  // C = op(A)·op(B) of bf16 matrices, C in fp32: the work of a trainer's
  // forward and backward. UsageError where the device has no such products.
  virtual void bf16_product(Matrices c, ConstMatrices a, Op op_a,
                            ConstMatrices b, Op op_b);
  // C = alpha·op(A)·op(A)ᵀ + beta·C with C symmetric: one triangle is
  // computed, then mirrored, so C is exactly symmetric.
  virtual void symmetric_product(Matrices c, double alpha, ConstMatrices a,
                                 Op op_a, double beta) = 0;
  // C = A·B where A and B are symmetric and commute: one triangle, mirrored.
  virtual void commuting_product(Matrices c, ConstMatrices a,
                                 ConstMatrices b) = 0;

  // Decompositions. `succeeded` has one entry per matrix; where one failed,
  // the matrix holds nothing of use. Inputs must be finite.
  // A (symmetric) becomes its eigenvectors, one per column, by ascending
  // eigenvalue; values is count x 1 x n.
  virtual void eigh(Matrices a, Matrices values, std::span<bool> succeeded) = 0;
  // A (rows >= cols) becomes the orthogonal factor of its QR by Householder.
  virtual void qr(Matrices a, std::span<bool> succeeded) = 0;
  // The same by shifted Cholesky QR, three rounds of products: for devices on
  // which those are cheap (on a CPU it takes twice as long as qr). Fails where
  // the columns are nearly dependent. R's diagonal is positive.
  virtual void cholesky_qr(Matrices a, std::span<bool> succeeded) = 0;
  // A (symmetric, positive definite) becomes its lower Cholesky factor, zeros
  // above the diagonal.
  virtual void cholesky(Matrices a, std::span<bool> succeeded) = 0;
  // B = B·L⁻ᵀ for a lower triangular L.
  virtual void solve_right_transposed(Matrices b, ConstMatrices l) = 0;

  // Reductions, one result per matrix; nothing overflows or underflows that
  // the result does not. The order of additions depends on the shape alone.
  virtual void norms(ConstMatrices a, std::span<double> results) = 0;
  virtual void max_abs(ConstMatrices a, std::span<double> results) = 0;
  virtual void traces(ConstMatrices a, std::span<double> results) = 0;
  virtual bool all_finite(ConstRun run, int64_t count) = 0;
  virtual void finite(ConstMatrices a, std::span<bool> results) = 0;
  // *first = 1 + the number of the first run with a value that is not finite,
  // 0 if there is none; in the engine's memory. Runs may be of bf16.
  struct Stretch {
    ConstRun run{};
    int64_t count = 0;
  };
  virtual void find_nonfinite(int32_t* first,
                              std::span<const Stretch> runs) = 0;
  // Over runs of fp32 or bf16, the same whatever the order and the cuts. The
  // bits of the largest |x| as an unsigned number, so that a NaN is above
  // infinity and that above all others; 0 for nothing.
  virtual uint32_t largest_bits(std::span<const Stretch> runs) = 0;
  // x = factor·x over the runs, and largest_bits of what they are then; the
  // same bits as by scale() and largest_bits(), in one pass where a device can.
  struct ScaledStretch {
    Run run{};
    int64_t count = 0;
  };
  virtual uint32_t scale_and_look(std::span<const ScaledStretch> runs,
                                  double factor);
  // Σ trunc((x·2^exponent)²), of which the truncation is the only loss. The
  // caller sees to it that |x|·2^exponent is at most 2^31 (wide_sum.h).
  virtual WideSum sum_of_squares(std::span<const Stretch> runs,
                                 int exponent) = 0;

  // The same for whom nobody waits (gradient_numbers.h): everything is in the
  // engine's memory. Raises `largest` to the bits of the runs.
  virtual void find_largest(GradientNumbers* numbers,
                            std::span<const Stretch> runs);
  // *code = codes[*found - 1] if it was 0 and *found is not, as find_nonfinite
  // leaves it.
  virtual void keep_first_code(int64_t* code, const int32_t* found,
                               std::span<const int64_t> codes);
  // *number becomes *other if that is larger.
  virtual void raise(int64_t* number, const int64_t* other);
  // Says whether to skip.
  virtual void judge(GradientNumbers* numbers);
  // The same by what the largest of all ranks are (gradient_numbers.h), which
  // become those of this one; skips if `largest` is at least `least`.
  virtual void judge_shared(GradientNumbers* numbers, const int64_t* shared,
                            int64_t least);
  // Adds to the squares, whose exponent follows from `largest`; nothing if that
  // is 0 or not finite.
  virtual void add_squares(GradientNumbers* numbers,
                           std::span<const Stretch> runs);
  // The squares as four limbs of 32 bits, the lowest first, which ranks may add
  // one by one, and back, with what limbs have to carry then.
  virtual void split_squares(int64_t* limbs, const GradientNumbers* numbers);
  virtual void join_squares(GradientNumbers* numbers, const int64_t* limbs);
  // A few numbers of this process, for which nobody waits.
  virtual void put_numbers(int64_t* to, std::span<const int64_t> numbers);
  // The norm, and the factor; 1 where the step is skipped.
  virtual void clip(GradientNumbers* numbers, double limit);
  // x = *factor·x, as by scale(), for fp32; bf16 is rounded to nearest.
  virtual void scale_by(Run run, const double* factor, int64_t count);

  // values[j] = Σ_i a[i,j]·b[i,j]; values is count x 1 x cols.
  virtual void column_dots(Matrices values, ConstMatrices a,
                           ConstMatrices b) = 0;

  // Whole-matrix element-wise work. A span has one scalar per matrix.
  virtual void copy(Matrices to, ConstMatrices from) = 0;
  // The same between fp32 and fp64, or fp32 and bf16, rounded to nearest.
  virtual void convert(Matrices to, ConstMatrices from) = 0;
  virtual void set_identity(Matrices a, std::span<const double> diagonals) = 0;
  void set_identity(Matrices a, double diagonal);  // rest is 0
  virtual void add_diagonal(Matrices a, std::span<const double> values) = 0;
  void add_diagonal(Matrices a, double value);
  // y = alpha·x + beta·y; beta 0 ignores what y held.
  virtual void axpby(Matrices y, std::span<const double> alphas,
                     ConstMatrices x, double beta) = 0;
  void axpby(Matrices y, double alpha, ConstMatrices x, double beta);
  // Indices by rising or falling values (count x 1 x n), the first of equal
  // ones first.
  virtual void sort(Orders orders, ConstMatrices values, bool falling) = 0;
  // Columns (rows) of `from` in the given order.
  virtual void permute_columns(Matrices to, ConstMatrices from,
                               ConstOrders order) = 0;
  virtual void permute_rows(Matrices to, ConstMatrices from,
                            ConstOrders order) = 0;
  // Each value v of count x 1 x n becomes (v + lift)^exponent, the sum and the
  // power in fp64, lift being one per matrix: `floor` less the first, smallest
  // value if that is below the floor, else 0; or, with `shift`, the floor less
  // the smallest value if that is negative, else the floor itself.
  virtual void raise_values(Matrices values, std::span<const double> floors,
                            bool shift, double exponent) = 0;
  // to = 1/sqrt(scale·max(from, floor)), in fp64.
  virtual void inverse_roots(Matrices to, ConstMatrices from, double scale,
                             double floor) = 0;
  // to[i,j] = from[i,j]·factors[j]; factors is 1 x cols, one per matrix.
  virtual void scale_columns(Matrices to, ConstMatrices from,
                             ConstMatrices factors) = 0;
  // a *= |reference|_F / (|a|_F + epsilon)
  virtual void scale_to_norm(Matrices a, ConstMatrices reference,
                             double epsilon) = 0;
  // a *= min(1, norm / (|a|_F + epsilon))
  virtual void limit_norms(Matrices a, double norm, double epsilon) = 0;

  // Stages on flat runs of `count` elements (stages.h). `l2` adds l2·p to the
  // gradient as it is read.
  struct MomentumStage {
    ConstRun grad{};
    ConstRun weights{};  // only if l2 is not 0
    double l2 = 0;
    Run momentum{};
    Run out{};
    Blend blend{};
  };
  virtual void momentum(const MomentumStage& stage, int64_t count) = 0;
  // `rounded`, if it is not null, becomes the new weights in bf16.
  virtual void apply(Run weights, ConstRun update, const Apply& apply,
                     int64_t count, uint16_t* rounded = nullptr) = 0;
  // out = the quotient; m may be null (then from_moment is 0). out may be the
  // gradient's own run.
  virtual void adam(ConstRun grad, Run m, Run v, Run out,
                    const AdamCoefficients& adam, int64_t count) = 0;
  // The same, applied to the weights at once; the same bits. Many tensors.
  struct AdamRuns {
    ConstRun grad{};
    Run m{}, v{}, weights{};
    int64_t count = 0;
    uint16_t* rounded = nullptr;
  };
  virtual void adam_apply(std::span<const AdamRuns> tensors,
                          const AdamCoefficients& adam, const Apply& apply) = 0;
  virtual void round_to_bf16(uint16_t* to, const float* from,
                             int64_t count) = 0;
  // The other way round, for many runs; addresses may be others at each
  // repetition.
  struct Widened {
    float* to = nullptr;
    const uint16_t* from = nullptr;
    int64_t count = 0;
  };
  virtual void widen(std::span<const Widened> runs);
  // x = factor·x
  void scale(Run run, double factor, int64_t count);

 private:
  Memory& memory_;
  Arena arena_;
  std::vector<Stretch> looked_at_;
};

// Kernels for bf16 that this machine may run, best first; for tests and
// `canzona doctor`. "auto" takes the best.
enum class Bf16Kernel { kAmx, kAvx512, kPortable };
std::span<const Bf16Kernel> usable_bf16_kernels();
std::string_view to_string(Bf16Kernel kernel);

std::unique_ptr<Engine> make_cpu_engine();
std::unique_ptr<Engine> make_cpu_engine(Bf16Kernel kernel);
// UsageError in a build without CUDA, and on a machine without a GPU.
std::unique_ptr<Engine> make_cuda_engine();
// On this GPU, in the order of the caller's own work: `stream` is a
// cudaStream_t that outlives the engine, or 1 for the default stream
// (cudaStreamLegacy); null: one of its own. The GPU is the
// calling thread's current one from then on, as it is to be for every thread
// that uses the engine. UsageError as above, and if there is no such GPU.
// Scratch comes from `scratch`, which outlives the engine; null: from the GPU.
std::unique_ptr<Engine> make_cuda_engine(int device, void* stream,
                                         Memory* scratch = nullptr);
// "cpu" or "cuda"; UsageError names what else was asked for.
std::unique_ptr<Engine> make_engine(std::string_view device);

}  // namespace canzona
