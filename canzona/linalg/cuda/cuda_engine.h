// The engine of an NVIDIA GPU: one stream, cuBLAS and cuSOLVER in fp32 and
// fp64, our own kernels for the rest.
//
// A method that launches a kernel looks like this:
//
//   void CudaEngine::axpby(Matrices y, std::span<const double> alphas,
//                          ConstMatrices x, double beta) {
//     const auto* a = push<double>(alphas);
//     const auto* b = push<double>(beta);
//     if (dry("axpby", y, x)) return;
//     launch_axpby(stream(), y, a, x, b);
//   }
//
// In a dry run (see repeat) dry() records the call and nothing is launched;
// anything that a capture must not do (making handles, choosing algorithms,
// allocating) has to come before it. Kernels read scalars from memory, so that
// a replay can use others: every number that may differ from step to step must
// be pushed. A number that decides which kernel runs must also be an argument
// of dry().
//
// make_cuda_engine() makes one. One thread at a time may use it, and a single
// thread must issue all repeated work.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusolverDn.h>

#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/linalg/cuda/device.h"
#include "canzona/linalg/cuda/graph/graphs.h"
#include "canzona/linalg/cuda/graph/recording.h"
#include "canzona/linalg/engine.h"

namespace canzona::linalg {

class Graph;
class Graphs;
class Libraries;
class LtProducts;

// Scratch of one engine in the GPU's memory. It is released only when the work
// on the engine's stream, which may still use it, has ended; cudaFree alone
// does not promise to wait.
class CudaScratch final : public Memory {
 public:
  void set_stream(cudaStream_t stream) { stream_ = stream; }
  std::byte* allocate(int64_t bytes) override {
    return cuda_memory().allocate(bytes);
  }
  void release(std::byte* memory) override;

 private:
  cudaStream_t stream_ = nullptr;
};

// This is a base of the engine, so that its scratch outlives its arena.
struct OwnsCudaScratch {
  CudaScratch scratch;
};

class CudaEngine final : private OwnsCudaScratch, public Engine {
 public:
  // With a null stream the engine makes its own. With a null memory it takes
  // scratch from the GPU; any other memory must outlive the engine, and may
  // hand out what was released only to later work on the stream.
  explicit CudaEngine(int device = 0, cudaStream_t stream = nullptr,
                      Memory* memory = nullptr);
  ~CudaEngine() override;

  std::string kind() const override { return "cuda"; }
  const MemoryOps& memory_ops() const override { return cuda_memory_ops(); }
  std::string describe() const override;
  int64_t batch_width() const override { return 4096; }
  Algebra& algebra(DType dtype) override;

  // For code that works on behalf of this engine.

  // The stream to launch on; it may change while work is captured.
  cudaStream_t stream();
  // Records a call by its name and arguments (pointers, sizes, views, flags; no
  // scalars) if work is being recorded. Returns true if nothing must be
  // launched.
  template <class... Args>
  bool dry(std::string_view name, const Args&... args) {
    if (recording_ == nullptr) {
      if (profile_ != nullptr) profile_->begin(name, own_stream_);
      return false;
    }
    Signature& signature = recording_->signature();
    signature.add(name);
    signature.add(id_);
    (signature.add(args), ...);
    return recording_->is_dry();
  }
  bool is_dry() const { return recording_ != nullptr && recording_->is_dry(); }
  // Must begin every call whose results come back to this process.
  void needs_results() const {
    if (recording_ != nullptr) refuse_results();
    if (profile_ != nullptr) profile_->begin("results", own_stream_);
  }

  // Returns scalars in memory that kernels can read, rounded to Real (float or
  // double), 16-byte aligned, valid for the launches of the current call.
  template <class Real>
  const Real* push(std::span<const double> values);
  template <class Real>
  const Real* push(std::initializer_list<double> values) {
    return push<Real>(std::span(values.begin(), values.size()));
  }
  template <class Real>
  const Real* push(double value) {
    return push<Real>(std::span<const double>(&value, 1));
  }
  // Returns a copy of the entries (pointers, sizes, descriptions: whatever is
  // the same at every repetition) in device memory, valid for the launches of
  // the current call. Their contents are part of what dry() records.
  template <class T>
  const T* table(std::span<const T> entries) {
    return reinterpret_cast<const T*>(table_bytes(std::as_bytes(entries)));
  }
  template <class T>
  const T* table(const std::vector<T>& entries) {
    return table(std::span<const T>(entries));
  }

  // Does the same for entries that may differ at every repetition, such as
  // addresses of gradients; they travel with the scalars.
  template <class T>
  const T* moving_table(std::span<const T> entries) {
    return reinterpret_cast<const T*>(moving_bytes(std::as_bytes(entries)));
  }
  // If this is not null and its number is not 0, element-wise kernels do
  // nothing (guard).
  const int32_t* skip_flag() const { return skip_; }

  // The workspace is scratch for libraries and for short sequences of kernels
  // within a call. It has kWorkspaceBytes and is 256-byte aligned.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;
  std::byte* workspace();
  // Handles are created on first use. Every call sets the stream and the
  // workspace again, as they may have changed.
  cublasHandle_t cublas();
  cublasLtHandle_t cublas_lt();
  LtProducts& lt_products();
  cusolverDnHandle_t cusolver();
  cusolverDnParams_t cusolver_params();
  int num_multiprocessors() const { return num_multiprocessors_; }

  // Fetches `count` results from the device, waiting for them; valid until the
  // next such call.
  template <class T>
  std::span<const T> results(const T* device, int64_t count) {
    const auto bytes = count * static_cast<int64_t>(sizeof(T));
    return {reinterpret_cast<const T*>(
                fetch(reinterpret_cast<const std::byte*>(device), bytes)),
            static_cast<size_t>(count)};
  }

  // In cuda_engine.cc.
  void upload(std::byte* to, const std::byte* from, int64_t bytes) override;
  void download(std::byte* to, const std::byte* from, int64_t bytes) override;
  void set_zero(std::byte* to, int64_t bytes) override;
  void wait_for(Engine& other) override;
  std::unique_ptr<Event> record() override;
  std::unique_ptr<Event> make_event() override;
  std::unique_ptr<Event> make_timed_event() override;
  void record_in(Event& event) override;
  void wait_until(const Event& event) override;
  std::unique_ptr<MemoryLane> make_lane() override;
  std::unique_ptr<Notice> make_notice() override;
  void synchronize() override;
  void idle(double seconds) override;

  // In graph/recording.cc.
  void repeat(const std::function<void()>& work) override;
  void if_zero(const int32_t* flag, const std::function<void()>& work) override;
  void guard(const int32_t* flag, const std::function<void()>& work) override;
  std::vector<StageTime> profile(const std::function<void()>& work) override;

  int64_t num_graphs() const;  // ready for replay

  // In dense.cc.
  void set_products(Products products) override { products_ = products; }
  void product(Matrices c, double alpha, ConstMatrices a, Op op_a,
               ConstMatrices b, Op op_b, double beta) override;
  void bf16_product(Matrices c, ConstMatrices a, Op op_a, ConstMatrices b,
                    Op op_b) override;
  void symmetric_product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                         double beta) override;
  // Computes a symmetric_product, but leaves the part above the diagonal
  // undefined.
  void lower_product(Matrices c, double alpha, ConstMatrices a, Op op_a,
                     double beta);
  void commuting_product(Matrices c, ConstMatrices a, ConstMatrices b) override;
  void solve_right_transposed(Matrices b, ConstMatrices l) override;

  // In decompositions.cc.
  void eigh(Matrices a, Matrices values, std::span<bool> succeeded) override;
  void qr(Matrices a, std::span<bool> succeeded) override;
  void cholesky(Matrices a, std::span<bool> succeeded) override;
  void cholesky_qr(Matrices a, std::span<bool> succeeded) override;

  // In reductions.cu and finite.cu.
  void norms(ConstMatrices a, std::span<double> results) override;
  void max_abs(ConstMatrices a, std::span<double> results) override;
  void traces(ConstMatrices a, std::span<double> results) override;
  bool all_finite(ConstRun run, int64_t count) override;
  void finite(ConstMatrices a, std::span<bool> results) override;
  void find_nonfinite(int32_t* first, std::span<const Stretch> runs) override;
  uint32_t largest_bits(std::span<const Stretch> runs) override;
  WideSum sum_of_squares(std::span<const Stretch> runs, int exponent) override;
  void find_largest(GradientNumbers* numbers,
                    std::span<const Stretch> runs) override;
  void scale_and_find_largest(GradientNumbers* numbers,
                              std::span<const ScaledStretch> runs,
                              double factor) override;
  void keep_first_code(int64_t* code, const int32_t* found,
                       std::span<const int64_t> codes) override;
  void raise(int64_t* number, const int64_t* other) override;
  void judge_shared(GradientNumbers* numbers, const int64_t* shared,
                    int64_t least) override;
  void split_squares(int64_t* limbs, const GradientNumbers* numbers) override;
  void join_squares(GradientNumbers* numbers, const int64_t* limbs) override;
  void put_numbers(int64_t* to, std::span<const int64_t> numbers) override;
  void add_squares(GradientNumbers* numbers,
                   std::span<const Stretch> runs) override;
  void clip(GradientNumbers* numbers, double limit) override;
  void scale_by(Run run, const double* factor, int64_t count) override;
  void column_dots(Matrices values, ConstMatrices a, ConstMatrices b) override;
  void scale_to_norm(Matrices a, ConstMatrices reference,
                     double epsilon) override;
  void limit_norms(Matrices a, double norm, double epsilon) override;

  // In lines.cu.
  void line_norms(Matrices norms, ConstMatrices a, Lines lines) override;
  void line_factors(Matrices factors, ConstMatrices norms,
                    const LineFactors& how, Matrices moments,
                    ConstMatrices other) override;
  void scale_rows(Matrices to, ConstMatrices from,
                  ConstMatrices factors) override;
  void apply_lines(Matrices weights, const LineUpdate& how,
                   uint16_t* const* rounded) override;
  void project_lines(ConstMatrices weights, const LineUpdate& how) override;
  void row_sums(const RowSums& sums, ConstMatrices update,
                ConstMatrices weights) override;
  void moved_factors(Matrices to, const RowSums& sums, ConstMatrices factors,
                     const Apply& apply, double target, double floor) override;

  // In elementwise.cu.
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

  // In elementwise.cu.
  void sort(Orders orders, ConstMatrices values, bool falling) override;
  void raise_values(Matrices values, std::span<const double> floors, bool shift,
                    double exponent) override;
  void inverse_roots(Matrices to, ConstMatrices from, double scale,
                     double floor) override;

  // In stages.cu.
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
  void widen(std::span<const Widened> runs) override;

 private:
  friend class Recording;

  const std::byte* push_bytes(std::span<const std::byte> bytes);
  const std::byte* table_bytes(std::span<const std::byte> bytes);
  const std::byte* moving_bytes(std::span<const std::byte> bytes);
  const std::byte* fetch(const std::byte* device, int64_t bytes);
  [[noreturn]] void refuse_results() const;
  void launch(Recording& dry_run, const std::function<void()>& work);
  Graph& capture(Recording& dry_run, const std::function<void()>& work);

  uint64_t id_;  // unique among the engines of a process
  int device_;
  int num_multiprocessors_ = 0;
  bool owns_stream_;
  cudaStream_t own_stream_ = nullptr;
  cudaEvent_t edge_ = nullptr;  // for wait_for
  Recording* recording_ = nullptr;
  const int32_t* skip_ = nullptr;
  Profile* profile_ = nullptr;
  Ring ring_;
  std::vector<float> rounded_;
  Products products_ = Products::kPlain;
  std::byte* workspace_ = nullptr;
  std::unique_ptr<Libraries> libraries_;
  std::unique_ptr<LtProducts> lt_products_;
  std::unique_ptr<Graphs> graphs_;
  std::array<std::unique_ptr<Algebra>, 4> algebras_;
  std::byte* results_ = nullptr;  // in host memory
  int64_t results_size_ = 0;
};

template <>
const float* CudaEngine::push(std::span<const double> values);
template <>
const double* CudaEngine::push(std::span<const double> values);

}  // namespace canzona::linalg
