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
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "canzona/linalg/arena.h"
#include "canzona/linalg/matrix.h"
#include "canzona/linalg/operand.h"
#include "canzona/linalg/stages.h"

namespace canzona {

enum class Op { kNone, kTranspose };

class Engine {
 public:
  virtual ~Engine() = default;

  // "cpu", and what computes: "OpenBLAS 0.3.21 SkylakeX, bf16 by amx".
  virtual std::string kind() const = 0;
  virtual std::string describe() const = 0;
  Arena& arena() { return arena_; }

  // How many matrices of equal shape are best handed over at once.
  virtual int64_t batch_width() const = 0;

  // Newton–Schulz in fp64, fp32 or bf16 with fp32 sums.
  virtual Algebra& algebra(DType dtype) = 0;

  // C = alpha·op(A)·op(B) + beta·C.
  virtual void product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                       ConstMatrices b, Op op_b, double beta) = 0;
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
  // values[j] = Σ_i a[i,j]·b[i,j]; values is count x 1 x cols.
  virtual void column_dots(Matrices values, ConstMatrices a,
                           ConstMatrices b) = 0;

  // Whole-matrix element-wise work.
  virtual void copy(Matrices to, ConstMatrices from) = 0;
  virtual void set_identity(Matrices a, double diagonal) = 0;  // rest is 0
  virtual void add_diagonal(Matrices a, double value) = 0;
  // y = alpha·x + beta·y; beta 0 ignores what y held.
  virtual void axpby(Matrices y, double alpha, ConstMatrices x,
                     double beta) = 0;
  // Columns (rows) of `from` in the given order, one order for the batch.
  virtual void permute_columns(Matrices to, ConstMatrices from,
                               std::span<const int64_t> order) = 0;
  virtual void permute_rows(Matrices to, ConstMatrices from,
                            std::span<const int64_t> order) = 0;
  // to[i,j] = from[i,j]·factors[j]; factors is 1 x cols, one per matrix.
  virtual void scale_columns(Matrices to, ConstMatrices from,
                             ConstMatrices factors) = 0;
  // a *= |reference|_F / (|a|_F + epsilon)
  virtual void scale_to_norm(Matrices a, ConstMatrices reference,
                             double epsilon) = 0;

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
  virtual void apply(Run weights, ConstRun update, const Apply& apply,
                     int64_t count) = 0;
  // out = the quotient; m may be null (then from_moment is 0). out may be the
  // gradient's own run.
  virtual void adam(ConstRun grad, Run m, Run v, Run out,
                    const AdamCoefficients& adam, int64_t count) = 0;
  // The same, applied to the weights at once; the same bits.
  virtual void adam_apply(ConstRun grad, Run m, Run v, Run weights,
                          const AdamCoefficients& adam, const Apply& apply,
                          int64_t count) = 0;
  virtual void round_to_bf16(uint16_t* to, const float* from,
                             int64_t count) = 0;

 private:
  Arena arena_;
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

}  // namespace canzona
