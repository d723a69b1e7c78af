// Shifted Cholesky QR on a GPU, all matrices of a batch at once. What decides
// on success stays on the device until the end.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/cholesky_qr_kernels.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/inverse_factor.h"
#include "canzona/linalg/cuda/norms.h"
#include "canzona/linalg/cuda/solvers.h"

namespace canzona {
namespace {

// What some matrices of the batch work in.
struct Rooms {
  Matrices a;
  Matrices other;  // where the next round leaves its result
  Matrices gram;
  Matrices inverse;
  int32_t* info;
  int32_t* far;  // 1: another round is needed
  double* squares;
  CholeskyQrState state;

  Rooms some(int64_t begin, int64_t size) const {
    const int64_t column = begin * a.cols;
    return {a.part(begin, size),
            other.part(begin, size),
            gram.part(begin, size),
            inverse.part(begin, size),
            info + begin,
            far + begin,
            squares + column,
            {a.cols, size, state.hopeless + begin, state.lengths + column,
             state.distances + column}};
  }
};

Rooms take_rooms(Arena& arena, Matrices a) {
  const auto room = [&](int64_t rows) {
    return tidy_matrices(arena, a.dtype, rows, a.cols, a.count);
  };
  const int64_t columns = a.cols * a.count;
  return {
      a,
      room(a.rows),
      room(a.cols),
      room(a.cols),
      arena.take_array<int32_t>(a.count),
      arena.take_array<int32_t>(a.count),
      arena.take_array<double>(columns),
      {a.cols, a.count, arena.take_array<int32_t>(a.count),
       arena.take_array<double>(columns), arena.take_array<double>(columns)}};
}

// Scaling columns by positive numbers leaves the orthogonal factor alone, so
// every round begins by making them of length 1.
class CholeskyQr {
 public:
  CholeskyQr(CudaEngine& engine, Matrices a)
      : engine_(engine), all_(take_rooms(engine.arena(), a)) {}

  // The shift keeps the first factor from breaking down. What it leaves is
  // nearly orthonormal as a rule, and a plain round does the rest; else it is
  // well conditioned and takes two. Gives, for each matrix, whether it failed.
  const int32_t* run() {
    launch_begin(engine_, all_.state);
    launch_bring_into_range(engine_, all_.state, all_.a);
    normalise_columns(all_, false);
    form_gram(all_);
    engine_.add_diagonal(all_.gram, shift());
    orthogonalise(all_);
    normalise_columns(all_, true);
    form_gram(all_);
    launch_find_far(engine_, all_.far, all_.gram);
    orthogonalise(all_);
    finish_far_ones();
    launch_require_distance(engine_, all_.state, noise());
    // Sums that are cut off, not rounded, leave columns a little too long.
    normalise_columns(all_, false);
    return all_.state.hopeless;
  }

 private:
  // Between rounds: what a column has lost in length it had in common with
  // those before it.
  void normalise_columns(const Rooms& rooms, bool follow) {
    column_sums_on_device(engine_, rooms.squares, rooms.a, rooms.a);
    launch_take_lengths(engine_, rooms.state, rooms.squares, follow);
    launch_normalise(engine_, rooms.state, rooms.a);
  }

  void form_gram(const Rooms& rooms) {
    engine_.lower_product(rooms.gram, 1, rooms.a, Op::kTranspose, 0);
  }

  // A = A·R⁻¹ for the factor R of what stands in `gram`.
  void orthogonalise(Rooms& rooms) {
    invert_factor(engine_, rooms.gram, rooms.inverse, rooms.info);
    launch_take_factor(engine_, rooms.state, rooms.info, rooms.gram);
    times_transposed_inverse(engine_, rooms.other, rooms.a, rooms.inverse);
    std::swap(rooms.a, rooms.other);
  }

  // The last round must find little to do: it squares what is missing, down to
  // rounding. Each matrix decides for itself.
  void finish_far_ones() {
    const auto found = engine_.results(all_.far, all_.a.count);
    const std::vector<int32_t> far(found.begin(), found.end());
    for (int64_t begin = 0; begin < all_.a.count; ++begin) {
      int64_t end = begin;
      while (end < all_.a.count && far[static_cast<size_t>(end)] != 0) ++end;
      if (end > begin) finish_far(all_.some(begin, end - begin));
      begin = end;
    }
  }
  void finish_far(Rooms rooms) {
    normalise_columns(rooms, true);
    form_gram(rooms);
    launch_find_far(engine_, rooms.far, rooms.gram);
    launch_give_up(engine_, rooms.state, rooms.far);
    orthogonalise(rooms);
    engine_.copy(rooms.other, rooms.a);
  }

  // A column that lies in the span of the others comes out as the rounding of
  // one or two operations, stretched to length 1.
  double noise() const {
    return all_.a.dtype == DType::kFp32
               ? 8 * double{std::numeric_limits<float>::epsilon()}
               : 8 * std::numeric_limits<double>::epsilon();
  }

  // For columns of length 1. In fp32 the shift that theory asks for would be
  // as large as the matrix; a hundred roundings have proved enough.
  double shift() const {
    if (all_.a.dtype == DType::kFp32) return 1e-5;
    const auto m = static_cast<double>(all_.a.rows);
    const auto n = static_cast<double>(all_.a.cols);
    constexpr double kUnit = std::numeric_limits<double>::epsilon() / 2;
    return 11 * (m * n + n * (n + 1)) * kUnit * n;
  }

  CudaEngine& engine_;
  Rooms all_;
};

}  // namespace

void CudaEngine::cholesky_qr(Matrices a, std::span<bool> succeeded) {
  CANZONA_CHECK(a.rows >= a.cols, "QR of ", a.rows, "x", a.cols);
  CANZONA_CHECK_EQ(succeeded.size(), a.count, "results of a decomposition");
  needs_results();
  if (a.cols == 0 || a.count == 0) {
    std::ranges::fill(succeeded, true);
    return;
  }
  Arena::Scope scope(arena());
  const Matrices tidy =
      tidy_matrices(arena(), a.dtype, a.rows, a.cols, a.count);
  copy(tidy, a);
  // A basis needs all of fp32.
  const Products wanted = products_;
  if (products_ == Products::kBf16x3) products_ = Products::kBf16x6;
  const int32_t* hopeless = nullptr;
  try {
    hopeless = CholeskyQr(*this, tidy).run();
  } catch (...) {
    products_ = wanted;
    throw;
  }
  products_ = wanted;
  copy(a, tidy);
  const auto failures = results(hopeless, a.count);
  std::ranges::transform(failures, succeeded.begin(),
                         [](int32_t failure) { return failure == 0; });
}

}  // namespace canzona
