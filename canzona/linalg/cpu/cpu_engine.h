// The engine of a CPU core: OpenBLAS and LAPACK in fp32 and fp64, own kernels
// for bf16 (bf16/) and for element-wise work (stages/).
//
// A batch is done matrix by matrix, since a library's batched forms may give
// other bits. Made by make_cpu_engine(); one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "canzona/linalg/engine.h"

namespace canzona {

class CpuEngine final : public Engine {
 public:
  explicit CpuEngine(Bf16Kernel kernel);

  std::string kind() const override { return "cpu"; }
  std::string describe() const override;
  int64_t batch_width() const override { return 1; }
  Algebra& algebra(DType dtype) override;

  // dense.cc
  void product(Matrices c, double alpha, ConstMatrices a, Op op_a,
               ConstMatrices b, Op op_b, double beta) override;
  void symmetric_product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                         double beta) override;
  void commuting_product(Matrices c, ConstMatrices a, ConstMatrices b) override;
  void solve_right_transposed(Matrices b, ConstMatrices l) override;

  // decompositions.cc
  void eigh(Matrices a, Matrices values, std::span<bool> succeeded) override;
  void qr(Matrices a, std::span<bool> succeeded) override;
  void cholesky_qr(Matrices a, std::span<bool> succeeded) override;
  void cholesky(Matrices a, std::span<bool> succeeded) override;

  // cpu_engine.cc
  void norms(ConstMatrices a, std::span<double> results) override;
  void max_abs(ConstMatrices a, std::span<double> results) override;
  void traces(ConstMatrices a, std::span<double> results) override;
  bool all_finite(ConstRun run, int64_t count) override;
  void column_dots(Matrices values, ConstMatrices a, ConstMatrices b) override;

  // elementwise.cc
  void copy(Matrices to, ConstMatrices from) override;
  void set_identity(Matrices a, double diagonal) override;
  void add_diagonal(Matrices a, double value) override;
  void axpby(Matrices y, double alpha, ConstMatrices x, double beta) override;
  void permute_columns(Matrices to, ConstMatrices from,
                       std::span<const int64_t> order) override;
  void permute_rows(Matrices to, ConstMatrices from,
                    std::span<const int64_t> order) override;
  void scale_columns(Matrices to, ConstMatrices from,
                     ConstMatrices factors) override;
  void scale_to_norm(Matrices a, ConstMatrices reference,
                     double epsilon) override;

  // cpu_engine.cc
  void momentum(const MomentumStage& stage, int64_t count) override;
  void apply(Run weights, ConstRun update, const Apply& apply,
             int64_t count) override;
  void adam(ConstRun grad, Run m, Run v, Run out, const AdamCoefficients& adam,
            int64_t count) override;
  void adam_apply(ConstRun grad, Run m, Run v, Run weights,
                  const AdamCoefficients& adam, const Apply& apply,
                  int64_t count) override;
  void round_to_bf16(uint16_t* to, const float* from, int64_t count) override;

 private:
  Bf16Kernel bf16_kernel_;
  std::unique_ptr<Algebra> fp64_;
  std::unique_ptr<Algebra> fp32_;
  std::unique_ptr<Algebra> bf16_;
};

}  // namespace canzona
