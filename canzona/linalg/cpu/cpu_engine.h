// The engine of a CPU core: OpenBLAS and LAPACK in fp32 and fp64, our own
// kernels for bf16 (bf16/) and for element-wise work (stages/).
//
// A batch is processed matrix by matrix, since a library's batched forms may
// give other bits. It must override whatever host_defaults.cc leaves to a CPU
// engine. make_cpu_engine() makes it; one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "canzona/linalg/cpu/cpu_algebra.h"
#include "canzona/linalg/cpu/products.h"
#include "canzona/linalg/engine.h"

namespace canzona::linalg {

class CpuEngine : public Engine {
 public:
  explicit CpuEngine(Bf16Kernel kernel);

  std::string kind() const override { return "cpu"; }
  const MemoryOps& memory_ops() const override { return cpu_memory_ops(); }
  std::string describe() const override;
  int64_t batch_width() const override { return 1; }
  Algebra& algebra(DType dtype) override;

  // Memory and order.
  void upload(std::byte* to, const std::byte* from, int64_t bytes) override;
  void download(std::byte* to, const std::byte* from, int64_t bytes) override;
  void set_zero(std::byte* to, int64_t bytes) override;
  void synchronize() override {}

  // Products and decompositions.
  void product(Matrices c, double alpha, ConstMatrices a, Op op_a,
               ConstMatrices b, Op op_b, double beta) override;
  void symmetric_product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                         double beta) override;
  void commuting_product(Matrices c, ConstMatrices a, ConstMatrices b) override;
  void solve_right_transposed(Matrices b, ConstMatrices l) override;

  void eigh(Matrices a, Matrices values, std::span<bool> succeeded) override;
  void qr(Matrices a, std::span<bool> succeeded) override;
  void cholesky_qr(Matrices a, std::span<bool> succeeded) override;
  void cholesky(Matrices a, std::span<bool> succeeded) override;

  // Reductions.
  void norms(ConstMatrices a, std::span<double> results) override;
  void max_abs(ConstMatrices a, std::span<double> results) override;
  void traces(ConstMatrices a, std::span<double> results) override;
  bool all_finite(ConstRun run, int64_t count) override;
  void finite(ConstMatrices a, std::span<bool> results) override;
  void find_nonfinite(int32_t* first, std::span<const Stretch> runs) override;
  uint32_t largest_bits(std::span<const Stretch> runs) override;
  uint32_t scale_and_look(std::span<const ScaledStretch> runs,
                          double factor) override;
  WideSum sum_of_squares(std::span<const Stretch> runs, int exponent) override;
  void scale_by(Run run, const double* factor, int64_t count) override;
  void column_dots(Matrices values, ConstMatrices a, ConstMatrices b) override;

  // In lines.cc.
  void line_norms(Matrices norms, ConstMatrices a, Lines lines) override;
  void line_factors(Matrices factors, ConstMatrices norms,
                    const LineFactors& how, Matrices moments,
                    ConstMatrices other) override;
  void scale_rows(Matrices to, ConstMatrices from,
                  ConstMatrices factors) override;
  void row_sums(const RowSums& sums, ConstMatrices update,
                ConstMatrices weights) override;
  void moved_factors(Matrices to, const RowSums& sums, ConstMatrices factors,
                     const Apply& apply, double target, double floor) override;

  // One pass over the elements, in elementwise.cc.
  using Engine::add_diagonal;
  using Engine::axpby;
  using Engine::set_identity;
  void copy(Matrices to, ConstMatrices from) override;
  void convert(Matrices to, ConstMatrices from) override;
  void set_identity(Matrices a, std::span<const double> diagonals) override;
  void add_diagonal(Matrices a, std::span<const double> values) override;
  void axpby(Matrices y, std::span<const double> alphas, ConstMatrices x,
             double beta) override;
  void permute_columns(Matrices to, ConstMatrices from,
                       ConstOrders order) override;
  void permute_rows(Matrices to, ConstMatrices from,
                    ConstOrders order) override;
  void take_triangle(Run triangle, ConstMatrices square) override;
  void put_triangle(Matrices square, ConstRun triangle) override;
  void scale_columns(Matrices to, ConstMatrices from,
                     ConstMatrices factors) override;
  void scale_to_norm(Matrices a, ConstMatrices reference,
                     double epsilon) override;
  void limit_norms(Matrices a, double norm, double epsilon) override;

  void sort(Orders orders, ConstMatrices values, bool falling) override;
  void raise_values(Matrices values, std::span<const double> floors, bool shift,
                    double exponent) override;
  void inverse_roots(Matrices to, ConstMatrices from, double scale,
                     double floor) override;

  // The stages of rules.
  void momentum(const MomentumStage& stage, int64_t count) override;
  void apply(Run weights, ConstRun update, const Apply& apply, int64_t count,
             uint16_t* rounded) override;
  void adam(ConstRun grad, Run m, Run v, Run out, const AdamCoefficients& adam,
            int64_t count) override;
  void adam_apply(std::span<const AdamRuns> tensors,
                  const AdamCoefficients& adam, const Apply& apply) override;
  void round_weights(uint16_t* to, const float* from, int64_t count) override;
  void split_masters(uint16_t* weights, uint16_t* remainders, const float* from,
                     int64_t count) override;
  void join_masters(float* to, const uint16_t* weights,
                    const uint16_t* remainders, int64_t count) override;

 private:
  Bf16Kernel bf16_kernel_;
  std::unique_ptr<CpuAlgebra> fp64_;
  std::unique_ptr<CpuAlgebra> fp32_;
  std::unique_ptr<CpuAlgebra> bf16_;
  PackingRoom packing_;
};

}  // namespace canzona::linalg
