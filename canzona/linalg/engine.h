// An engine is a lane of a device: operations on matrices, issued in order.
//
//   auto lane = make_cpu_engine();
//   Arena::Scope scope(lane->arena());
//   lane->symmetric_product(gram, 1.0, x, Op::kNone, 0.0);
//
// One thread at a time may use an engine. Several engines can work side by
// side; a matrix's result depends neither on them nor on its batch. Nothing is
// allocated after the first use with given shapes. Views must be of the
// engine's memory; inputs and outputs may overlap only where stated. Real types
// are fp32 and fp64, the same for all views of a call.
//
// A device may still be working when a call returns. Results that come back to
// this process (a span of results, a download) are available when the call
// returns; such calls wait, and are not allowed in repeated work.
//
// A new device must implement the pure functions alone: its name, its memory,
// waiting, and its products. Every other call has a default that is right on
// every device: it is made of other calls (engine.cc), or a CPU engine does the
// work on copies in host memory (host_defaults.cc), with the CPU's bits. Such
// copies wait, so a device overrides whatever each of its steps calls. A call
// that a new rule needs is added with a default, and obliges no device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/linalg/gradient_numbers.h"
#include "canzona/linalg/lines.h"
#include "canzona/linalg/matrix.h"
#include "canzona/linalg/memory.h"
#include "canzona/linalg/operand.h"
#include "canzona/linalg/stages.h"

namespace canzona {

enum class Op { kNone, kTranspose };

// How a device multiplies fp32 matrices: with fp32 products, or faster with
// each number as a sum of bf16 numbers: of two, with three of four products,
// which leaves relative errors of about 1e-5; or of three, with six of nine
// products, which is as accurate as fp32 sums.
enum class Products { kPlain, kBf16x3, kBf16x6 };

// Permutations in the engine's memory, with `length` entries each: matrix i of
// a batch of `matrices` uses number i·count/matrices.
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
namespace linalg {
class HostSide;
}

// A number that device work reports to this process: each wait is for one post.
class Notice {
 public:
  virtual ~Notice() = default;
  // `number` must be in the engine's memory. May be repeated.
  virtual void post(Engine& engine, const int32_t* number) = 0;
  virtual int32_t wait() = 0;
};

class Engine {
 public:
  explicit Engine(Memory& memory);
  virtual ~Engine();

  Memory& memory() { return memory_; }
  Arena& arena() { return arena_; }

  // Every device must implement these calls.

  // "cpu", and a description: "OpenBLAS 0.3.21 SkylakeX, bf16 by amx".
  virtual std::string kind() const = 0;
  virtual std::string describe() const = 0;
  // The number of matrices of equal shape that an algebra accepts at once, and
  // that is best for everything else.
  virtual int64_t batch_width() const = 0;
  // The memory operations of collectives for this engine's memory.
  virtual const MemoryOps& memory_ops() const = 0;

  // Copy between host memory and the engine's; they wait.
  virtual void upload(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void download(std::byte* to, const std::byte* from,
                        int64_t bytes) = 0;
  virtual void set_zero(std::byte* to, int64_t bytes) = 0;
  virtual void copy(Matrices to, ConstMatrices from) = 0;
  // Waits until everything issued here is done.
  virtual void synchronize() = 0;

  // Returns Newton–Schulz in fp64, fp32, or 16 bits with fp32 sums. Throws
  // UsageError if the device does not have it.
  virtual Algebra& algebra(DType dtype) = 0;
  // C = alpha·op(A)·op(B) + beta·C.
  virtual void product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                       ConstMatrices b, Op op_b, double beta) = 0;
  // C = alpha·op(A)·op(A)ᵀ + beta·C with C symmetric: one triangle is
  // computed, then mirrored, so C is exactly symmetric.
  virtual void symmetric_product(Matrices c, double alpha, ConstMatrices a,
                                 Op op_a, double beta) = 0;

  // The order of work. The defaults are those of a device without lanes: they
  // wait where another device would only issue.

  // Makes work that is issued here from now on happen after work that was
  // issued to `other` before.
  virtual void wait_for(Engine& other);
  virtual std::unique_ptr<Event> record();
  // The same with events that are made once, and with lanes beside this engine.
  // By default there are no lanes, and record_in() waits, so that events are
  // always reached; a device that overrides record_in() overrides wait_until().
  virtual std::unique_ptr<Event> make_event();
  // Makes an event that records when it was reached (Event::seconds_after).
  virtual std::unique_ptr<Event> make_timed_event() { return make_event(); }
  virtual void record_in(Event& event);
  virtual void wait_until(const Event&) {}
  virtual std::unique_ptr<MemoryLane> make_lane() { return nullptr; }
  virtual std::unique_ptr<Notice> make_notice();
  // Idles for this long, in place of a trainer's work.
  virtual void idle(double seconds);

  // Does work that is repeated: each time the same calls on the same memory
  // with other scalars. A device that can capture work does so the first time
  // and replays it later, with the same bits; work that asks for results is
  // simply done. Engines that wait_for this one inside, and that it waits for,
  // take part. The function may be called more often than its work is done, so
  // it must not change anything in this process but arenas.
  virtual void repeat(const std::function<void()>& work) { work(); }
  // Does the work if the number is 0. `flag` is in the engine's memory, and
  // nothing waits for it while work is being repeated.
  virtual void if_zero(const int32_t* flag, const std::function<void()>& work);
  // The same for element-wise calls (copies, conversions, stages, scale_by) and
  // find_nonfinite, each of which checks the number itself; other calls are
  // simply done. Nothing waits, nothing is captured, and the memory may be
  // different each time. By default the number is waited for and all calls are
  // left out. A device that overrides it overrides these calls, too.
  virtual void guard(const int32_t* flag, const std::function<void()>& work) {
    if_zero(flag, work);
  }

  // Returns the time that the device spent on the calls of `work`, by kind,
  // longest first; nothing if only this process's clock could tell.
  struct StageTime {
    std::string stage;
    int64_t calls = 0;
    double seconds = 0;
  };
  virtual std::vector<StageTime> profile(const std::function<void()>& work) {
    work();
    return {};
  }

  // Chooses how products are computed until called again; initially kPlain. It
  // is a hint: an engine without faster ones ignores it.
  virtual void set_products(Products) {}
  // C = op(A)·op(B) of bf16 matrices, with C in fp32: the work of a trainer's
  // forward and backward. Throws UsageError if the device has no such products.
  virtual void bf16_product(Matrices c, ConstMatrices a, Op op_a,
                            ConstMatrices b, Op op_b);
  // C = A·B where A and B are symmetric and commute: one triangle, mirrored.
  virtual void commuting_product(Matrices c, ConstMatrices a, ConstMatrices b);

  // Decompositions. `succeeded` has one entry per matrix; if one failed, the
  // matrix is undefined. Inputs must be finite. eigh() replaces A (symmetric)
  // by its eigenvectors, one per column, by ascending eigenvalue; values is
  // count x 1 x n.
  virtual void eigh(Matrices a, Matrices values, std::span<bool> succeeded);
  // Replaces A (rows >= cols) by the orthogonal factor of its Householder QR.
  virtual void qr(Matrices a, std::span<bool> succeeded);
  // The same by shifted Cholesky QR, three rounds of products: for devices on
  // which products are cheap (on a CPU it takes twice as long as qr). Fails if
  // the columns are nearly dependent. R's diagonal is positive.
  virtual void cholesky_qr(Matrices a, std::span<bool> succeeded);
  // Replaces A (symmetric, positive definite) by its lower Cholesky factor,
  // with zeros above the diagonal.
  virtual void cholesky(Matrices a, std::span<bool> succeeded);
  // B = B·L⁻ᵀ for a lower triangular L.
  virtual void solve_right_transposed(Matrices b, ConstMatrices l);

  // Reductions, one result per matrix; intermediate values overflow or
  // underflow only if the result does. The order of additions depends on the
  // shape alone.
  virtual void norms(ConstMatrices a, std::span<double> results);
  virtual void max_abs(ConstMatrices a, std::span<double> results);
  virtual void traces(ConstMatrices a, std::span<double> results);
  virtual bool all_finite(ConstRun run, int64_t count);
  virtual void finite(ConstMatrices a, std::span<bool> results);
  // Sets *first, in the engine's memory, to 1 + the number of the first run
  // with a value that is not finite; 0 if there is none. Runs may be bf16.
  struct Stretch {
    ConstRun run{};
    int64_t count = 0;
  };
  virtual void find_nonfinite(int32_t* first, std::span<const Stretch> runs);
  // For runs of fp32 or bf16; the result does not depend on order or cuts.
  // Returns the bits of the largest |x| as an unsigned number, so that a NaN is
  // above infinity and infinity above all others; 0 for no elements.
  virtual uint32_t largest_bits(std::span<const Stretch> runs);
  // Sets x = factor·x over the runs and returns their largest_bits afterwards;
  // the same bits as scale() and largest_bits(), in one pass if the device can.
  struct ScaledStretch {
    Run run{};
    int64_t count = 0;
  };
  virtual uint32_t scale_and_look(std::span<const ScaledStretch> runs,
                                  double factor);
  // Σ trunc((x·2^exponent)²); the truncation is the only loss. The caller must
  // ensure that |x|·2^exponent is at most 2^31 (gradient_numbers.h).
  virtual WideSum sum_of_squares(std::span<const Stretch> runs, int exponent);

  // The same without waiting (gradient_numbers.h): everything is in the
  // engine's memory. Raises `largest` to the bits of the runs.
  virtual void find_largest(GradientNumbers* numbers,
                            std::span<const Stretch> runs);
  // The same of x = factor·x, which replaces x: the bits of scale() and
  // find_largest(), in one pass if the device can.
  virtual void scale_and_find_largest(GradientNumbers* numbers,
                                      std::span<const ScaledStretch> runs,
                                      double factor);
  // Sets *code = codes[*found - 1] if it was 0 and *found is not; *found is as
  // find_nonfinite leaves it.
  virtual void keep_first_code(int64_t* code, const int32_t* found,
                               std::span<const int64_t> codes);
  // Sets *number to *other if that is larger.
  virtual void raise(int64_t* number, const int64_t* other);
  // Decides whether to skip, from the largest over all ranks
  // (gradient_numbers.h), which replaces this rank's: if it is at least
  // `least`.
  virtual void judge_shared(GradientNumbers* numbers, const int64_t* shared,
                            int64_t least);
  // Adds to the squares, whose exponent follows from `largest`; does nothing if
  // that is 0 or not finite.
  virtual void add_squares(GradientNumbers* numbers,
                           std::span<const Stretch> runs);
  // Convert the squares to four limbs of 32 bits, lowest first, which ranks may
  // add separately, and back, with the carries.
  virtual void split_squares(int64_t* limbs, const GradientNumbers* numbers);
  virtual void join_squares(GradientNumbers* numbers, const int64_t* limbs);
  // Copies a few numbers from this process without waiting.
  virtual void put_numbers(int64_t* to, std::span<const int64_t> numbers);
  // Computes the norm and the factor; 1 if the step is skipped.
  virtual void clip(GradientNumbers* numbers, double limit);
  // x = *factor·x, like scale(), for fp32; bf16 is rounded to nearest.
  virtual void scale_by(Run run, const double* factor, int64_t count);

  // values[j] = Σ_i a[i,j]·b[i,j]; values is count x 1 x cols.
  virtual void column_dots(Matrices values, ConstMatrices a, ConstMatrices b);

  // Norms of lines, whose squares must be in the range of fp64, factors that
  // follow from them, and products with factors of rows (lines.h). `to` and
  // `from` may be the same.
  virtual void line_norms(Matrices norms, ConstMatrices a, Lines lines);
  virtual void line_factors(Matrices factors, ConstMatrices norms,
                            const LineFactors& how, Matrices moments = {},
                            ConstMatrices other = {});
  virtual void scale_rows(Matrices to, ConstMatrices from,
                          ConstMatrices factors);
  // Moves weights, which may be scattered here and below, by a LineUpdate: the
  // bits of scale_rows() or scale_columns(), project_lines() if it has lengths,
  // and apply(), in one pass if the device can. `rounded` is null or has one
  // address per matrix.
  virtual void apply_lines(Matrices weights, const LineUpdate& how,
                           uint16_t* const* rounded = nullptr);
  // update = p - g·(p moved by f·o): what pulled weights lose.
  virtual void project_lines(ConstMatrices weights, const LineUpdate& how);
  virtual void row_sums(const RowSums& sums, ConstMatrices update,
                        ConstMatrices weights);
  // Sets every factor of a matrix to target / max(m, floor), or to 0 where
  // m < floor: m is the norm of p moved by f·o, which follows from the sums of
  // rows, with f in `factors`. The target is |p|_F if it is 0.
  virtual void moved_factors(Matrices to, const RowSums& sums,
                             ConstMatrices factors, const Apply& apply,
                             double target, double floor);

  // Element-wise work on whole matrices. A span has one scalar per matrix.

  // Copies between fp32 and fp64, or fp32 and bf16, rounded to nearest.
  virtual void convert(Matrices to, ConstMatrices from);
  virtual void set_identity(Matrices a, std::span<const double> diagonals);
  void set_identity(Matrices a, double diagonal);  // rest is 0
  virtual void add_diagonal(Matrices a, std::span<const double> values);
  void add_diagonal(Matrices a, double value);
  // y = alpha·x + beta·y; with beta 0 the old y is ignored.
  virtual void axpby(Matrices y, std::span<const double> alphas,
                     ConstMatrices x, double beta);
  void axpby(Matrices y, double alpha, ConstMatrices x, double beta);
  // Sorts indices by rising or falling values (count x 1 x n); equal values
  // keep their order.
  virtual void sort(Orders orders, ConstMatrices values, bool falling);
  // Copies columns (rows) of `from` in the given order.
  virtual void permute_columns(Matrices to, ConstMatrices from,
                               ConstOrders order);
  virtual void permute_rows(Matrices to, ConstMatrices from, ConstOrders order);
  // The lower triangle of one square matrix, row after row without gaps, and
  // the symmetric matrix that has this lower triangle.
  virtual void take_triangle(Run triangle, ConstMatrices square);
  virtual void put_triangle(Matrices square, ConstRun triangle);
  // Replaces each value v of count x 1 x n by (v + lift)^exponent, with sum and
  // power in fp64. The lift of a matrix is `floor` minus its smallest (first)
  // value if that is below the floor, otherwise 0; or, with `shift`, the floor
  // minus the smallest value if that is negative, otherwise the floor itself.
  virtual void raise_values(Matrices values, std::span<const double> floors,
                            bool shift, double exponent);
  // to = 1/sqrt(scale·max(from, floor)), in fp64.
  virtual void inverse_roots(Matrices to, ConstMatrices from, double scale,
                             double floor);
  // to[i,j] = from[i,j]·factors[j]; factors is 1 x cols, one per matrix.
  virtual void scale_columns(Matrices to, ConstMatrices from,
                             ConstMatrices factors);
  // a *= |reference|_F / (|a|_F + epsilon)
  virtual void scale_to_norm(Matrices a, ConstMatrices reference,
                             double epsilon);
  // a *= min(1, norm / (|a|_F + epsilon))
  virtual void limit_norms(Matrices a, double norm, double epsilon);

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
  virtual void momentum(const MomentumStage& stage, int64_t count);
  // `rounded`, if not null, receives the new weights in bf16.
  virtual void apply(Run weights, ConstRun update, const Apply& apply,
                     int64_t count, uint16_t* rounded = nullptr);
  // out = the quotient; m may be null (then from_moment is 0). out may be the
  // gradient's own run.
  virtual void adam(ConstRun grad, Run m, Run v, Run out,
                    const AdamCoefficients& adam, int64_t count);
  // The same, applied to the weights directly, with the same bits; for many
  // tensors.
  struct AdamRuns {
    ConstRun grad{};
    Run m{}, v{}, weights{};
    int64_t count = 0;
    uint16_t* rounded = nullptr;
  };
  virtual void adam_apply(std::span<const AdamRuns> tensors,
                          const AdamCoefficients& adam, const Apply& apply);
  // Rounds fp32 masters to bf16 weights (base/master_bits.h).
  virtual void round_weights(uint16_t* to, const float* from, int64_t count);
  // Splits masters into weights and remainders, and restores them.
  virtual void split_masters(uint16_t* weights, uint16_t* remainders,
                             const float* from, int64_t count);
  virtual void join_masters(float* to, const uint16_t* weights,
                            const uint16_t* remainders, int64_t count);
  // The opposite conversion, for many runs; addresses may differ at each
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
  linalg::HostSide& host_side();

  Memory& memory_;
  Arena arena_;
  std::vector<Stretch> looked_at_;
  std::unique_ptr<linalg::HostSide>
      host_side_;  // made by the first call that needs it
};

// Kernels for bf16 that this machine supports, best first; for tests and
// `canzona doctor`. "auto" takes the best.
enum class Bf16Kernel { kAmx, kAvx512, kPortable };
std::span<const Bf16Kernel> usable_bf16_kernels();
std::string_view to_string(Bf16Kernel kernel);

std::unique_ptr<Engine> make_cpu_engine();
std::unique_ptr<Engine> make_cpu_engine(Bf16Kernel kernel);
// Throws UsageError in a build without CUDA, and on a machine without a GPU.
std::unique_ptr<Engine> make_cuda_engine();
// Makes an engine on this GPU, in the order of the caller's own work. `stream`
// is a cudaStream_t that must outlive the engine, or 1 for the default stream
// (cudaStreamLegacy); if null, the engine makes its own. The GPU becomes the
// calling thread's current one, as it must be for every thread that uses the
// engine. Throws UsageError as above, and if there is no such GPU. Scratch
// comes from `scratch`, which must outlive the engine; if null, from the GPU.
std::unique_ptr<Engine> make_cuda_engine(int device, void* stream,
                                         Memory* scratch = nullptr);
// Takes "cpu" or "cuda"; UsageError names anything else.
std::unique_ptr<Engine> make_engine(std::string_view device);

// Numbers in an engine's memory, which this process accesses only by copying.
//
//   EngineMemory memory(engine);
//   Run grad = memory.put(values);
//   std::vector<float> back = memory.get<float>(grad.data, 10);
//
// The destructor frees them. Only the engine's thread may use it, and the
// engine must outlive it.
class EngineMemory {
 public:
  explicit EngineMemory(Engine& engine)
      : engine_(engine), arena_(engine.memory()), scope_(arena_) {}

  Arena& arena() { return arena_; }
  Run take(int64_t count, DType dtype = DType::kFp32) {
    return {arena_.take(count * size_of(dtype)), dtype};
  }
  Run zeros(int64_t count, DType dtype = DType::kFp32) {
    const Run run = take(count, dtype);
    engine_.set_zero(run.data, count * size_of(dtype));
    return run;
  }
  uint16_t* rounded(int64_t count) {
    return arena_.take_array<uint16_t>(count);
  }
  template <class Real>
  Run put(const std::vector<Real>& values) {
    const Run run = take(std::ssize(values), DTypeOf<Real>::value);
    set(run, values);
    return run;
  }

  template <class Real>
  void set(Run run, const std::vector<Real>& values) const {
    engine_.upload(run.data, reinterpret_cast<const std::byte*>(values.data()),
                   static_cast<int64_t>(values.size() * sizeof(Real)));
  }
  template <class T>
  std::vector<T> get(const std::byte* data, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    engine_.download(reinterpret_cast<std::byte*>(values.data()), data,
                     count * static_cast<int64_t>(sizeof(T)));
    return values;
  }

 protected:
  Engine& engine_;

 private:
  Arena arena_;
  Arena::Scope scope_;
};

}  // namespace canzona
