#include "canzona/linalg/engine.h"

#include <algorithm>
#include <vector>

namespace canzona {
namespace {

// One scalar for all matrices of a batch, without the heap for small ones.
class Repeated {
 public:
  Repeated(double value, int64_t count) {
    if (count > kFew)
      many_.assign(static_cast<size_t>(count), value);
    else
      std::fill_n(few_, count, value);
    size_ = static_cast<size_t>(count);
  }
  std::span<const double> span() const {
    return {many_.empty() ? few_ : many_.data(), size_};
  }

 private:
  static constexpr int64_t kFew = 16;
  double few_[kFew];
  std::vector<double> many_;
  size_t size_;
};

}  // namespace

void Engine::set_identity(Matrices a, double diagonal) {
  set_identity(a, Repeated(diagonal, a.count).span());
}

void Engine::add_diagonal(Matrices a, double value) {
  add_diagonal(a, Repeated(value, a.count).span());
}

void Engine::axpby(Matrices y, double alpha, ConstMatrices x, double beta) {
  axpby(y, Repeated(alpha, y.count).span(), x, beta);
}

void Engine::scale(Run run, double factor, int64_t count) {
  const Matrices row = {run.data, run.dtype, 1,     count,
                        count,    1,         count, nullptr};
  axpby(row, factor, row, 0);
}

// Runs that lie one behind the other are scaled together.
uint32_t Engine::scale_and_look(std::span<const ScaledStretch> runs,
                                double factor) {
  looked_at_.clear();
  ScaledStretch open;
  for (const ScaledStretch& s : runs) {
    const int64_t bytes = open.count * size_of(open.run.dtype);
    if (open.run.data != nullptr && open.run.data + bytes == s.run.data) {
      open.count += s.count;
    } else {
      if (open.count > 0) scale(open.run, factor, open.count);
      open = s;
    }
    looked_at_.push_back({s.run, s.count});
  }
  if (open.count > 0) scale(open.run, factor, open.count);
  return largest_bits(looked_at_);
}

}  // namespace canzona
