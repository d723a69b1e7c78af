// SOAP and Shampoo as one would first write them down: every product full,
// every moment rotated back and forth, nothing kept that could be computed
// again. The baseline of our own kernels, on the same BLAS.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/linalg/engine.h"

namespace canzona::bench {

// The original SOAP on one matrix. The momentum is rotated out of the basis
// and into it in every step.
class PlainSoap {
 public:
  PlainSoap(int64_t rows, int64_t cols, int period);
  void step(Engine& engine, float* weights, const float* grad, double rate);

 private:
  void begin(Engine& engine, const float* grad);
  void refresh(Engine& engine, std::vector<float>& basis,
               const std::vector<float>& factor, int64_t d, bool left);
  void rotate(Engine& engine, std::vector<float>& to,
              const std::vector<float>& from, bool into);
  void add_statistics(Engine& engine, const float* grad, double keep);

  int64_t m_, n_;
  int period_;
  int64_t steps_ = -1;
  std::vector<float> left_, right_, left_basis_, right_basis_;
  std::vector<float> moment_, second_, rotated_, update_, scratch_;
};

// Shampoo on one matrix without blocks: statistics by full products, inverse
// fourth roots by eigenvectors, the length of the step from Adam.
class PlainShampoo {
 public:
  PlainShampoo(int64_t rows, int64_t cols, int period);
  void step(Engine& engine, float* weights, const float* grad, double rate);

 private:
  void refresh(Engine& engine, std::vector<float>& root,
               const std::vector<float>& factor, int64_t d, double correction);

  int64_t m_, n_;
  int period_;
  int64_t steps_ = 0;
  std::vector<float> left_, right_, left_root_, right_root_;
  std::vector<float> moment_, second_, graft_, update_, scratch_;
};

}  // namespace canzona::bench
