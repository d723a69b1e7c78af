// Calls that an engine leaves to a CPU engine unless its device overrides them:
// the work is done on copies in host memory, with the CPU's bits (host_side.h).
#include <algorithm>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/linalg/host_side.h"

namespace canzona {
using namespace linalg;

// Products and decompositions.

void Engine::commuting_product(Matrices c, ConstMatrices a, ConstMatrices b) {
  host_side().call(&Engine::commuting_product, Out(c), a, b);
}

void Engine::eigh(Matrices a, Matrices values, std::span<bool> succeeded) {
  host_side().call(&Engine::eigh, a, Out(values), succeeded);
}

void Engine::qr(Matrices a, std::span<bool> succeeded) {
  host_side().call(&Engine::qr, a, succeeded);
}

void Engine::cholesky_qr(Matrices a, std::span<bool> succeeded) {
  host_side().call(&Engine::cholesky_qr, a, succeeded);
}

void Engine::cholesky(Matrices a, std::span<bool> succeeded) {
  host_side().call(&Engine::cholesky, a, succeeded);
}

void Engine::solve_right_transposed(Matrices b, ConstMatrices l) {
  host_side().call(&Engine::solve_right_transposed, b, l);
}

// Reductions.

void Engine::norms(ConstMatrices a, std::span<double> results) {
  host_side().call(&Engine::norms, a, results);
}

void Engine::max_abs(ConstMatrices a, std::span<double> results) {
  host_side().call(&Engine::max_abs, a, results);
}

void Engine::traces(ConstMatrices a, std::span<double> results) {
  host_side().call(&Engine::traces, a, results);
}

bool Engine::all_finite(ConstRun run, int64_t count) {
  HostSide& here = host_side();
  bool all = false;
  here.run(
      [&](Engine& cpu) { all = cpu.all_finite(here.in(run, count), count); });
  return all;
}

void Engine::finite(ConstMatrices a, std::span<bool> results) {
  host_side().call(&Engine::finite, a, results);
}

void Engine::column_dots(Matrices values, ConstMatrices a, ConstMatrices b) {
  host_side().call(&Engine::column_dots, Out(values), a, b);
}

void Engine::line_norms(Matrices norms, ConstMatrices a, Lines lines) {
  HostSide& here = host_side();
  here.run(
      [&](Engine& cpu) { cpu.line_norms(here.out(norms), here.in(a), lines); });
}

void Engine::line_factors(Matrices factors, ConstMatrices norms,
                          const LineFactors& how, Matrices moments,
                          ConstMatrices other) {
  HostSide& here = host_side();
  here.run([&](Engine& cpu) {
    cpu.line_factors(how.first ? here.out(factors) : here.both(factors),
                     here.in(norms), how, here.both(moments), here.in(other));
  });
}

void Engine::scale_rows(Matrices to, ConstMatrices from,
                        ConstMatrices factors) {
  HostSide& here = host_side();
  here.run([&](Engine& cpu) {
    cpu.scale_rows(here.out(to), here.in(from), here.in(factors));
  });
}

void Engine::row_sums(const RowSums& sums, ConstMatrices update,
                      ConstMatrices weights) {
  for (int64_t i = 0; i < update.count; ++i) {
    HostSide& here = host_side();
    here.run([&](Engine& cpu) {
      cpu.row_sums({here.out(sums.update.at(i)), here.out(sums.weights.at(i)),
                    here.out(sums.dots.at(i))},
                   here.in(update.at(i)), here.in(weights.at(i)));
    });
  }
}

void Engine::moved_factors(Matrices to, const RowSums& sums,
                           ConstMatrices factors, const Apply& apply,
                           double target, double floor) {
  HostSide& here = host_side();
  here.run([&](Engine& cpu) {
    cpu.moved_factors(
        here.out(to),
        {here.both(sums.update), here.both(sums.weights), here.both(sums.dots)},
        here.in(factors), apply, target, floor);
  });
}

// Reductions of gradients, one run after another: together they may be larger
// than any matrix.

namespace {

// Calls work(cpu, stretches) with a copy of one stretch.
template <class Work>
void on_copy(HostSide& here, const Engine::Stretch& stretch, const Work& work) {
  here.run([&](Engine& cpu) {
    const Engine::Stretch copied = {here.in(stretch.run, stretch.count),
                                    stretch.count};
    work(cpu, std::span(&copied, 1));
  });
}

}  // namespace

void Engine::find_nonfinite(int32_t* first, std::span<const Stretch> runs) {
  int32_t found = 0;
  for (size_t i = 0; i < runs.size() && found == 0; ++i)
    on_copy(host_side(), runs[i],
            [&](Engine& cpu, std::span<const Stretch> one) {
              int32_t in_run = 0;
              cpu.find_nonfinite(&in_run, one);
              if (in_run != 0) found = static_cast<int32_t>(i) + 1;
            });
  upload(reinterpret_cast<std::byte*>(first),
         reinterpret_cast<const std::byte*>(&found), sizeof(found));
}

uint32_t Engine::largest_bits(std::span<const Stretch> runs) {
  uint32_t largest = 0;
  for (const Stretch& run : runs)
    on_copy(host_side(), run, [&](Engine& cpu, std::span<const Stretch> one) {
      largest = std::max(largest, cpu.largest_bits(one));
    });
  return largest;
}

WideSum Engine::sum_of_squares(std::span<const Stretch> runs, int exponent) {
  WideSum sum;
  for (const Stretch& run : runs)
    on_copy(host_side(), run, [&](Engine& cpu, std::span<const Stretch> one) {
      sum.add(cpu.sum_of_squares(one, exponent));
    });
  return sum;
}

void Engine::scale_by(Run run, const double* factor, int64_t count) {
  HostSide& here = host_side();
  double factor_here = 1;
  download(reinterpret_cast<std::byte*>(&factor_here),
           reinterpret_cast<const std::byte*>(factor), sizeof(factor_here));
  here.run([&](Engine& cpu) {
    cpu.scale_by(here.both(run, count), &factor_here, count);
  });
}

// Element-wise work on whole matrices.

void Engine::convert(Matrices to, ConstMatrices from) {
  host_side().call(&Engine::convert, Out(to), from);
}

void Engine::set_identity(Matrices a, std::span<const double> diagonals) {
  HostSide& here = host_side();
  here.run([&](Engine& cpu) { cpu.set_identity(here.out(a), diagonals); });
}

void Engine::add_diagonal(Matrices a, std::span<const double> values) {
  HostSide& here = host_side();
  here.run([&](Engine& cpu) { cpu.add_diagonal(here.both(a), values); });
}

void Engine::axpby(Matrices y, std::span<const double> alphas, ConstMatrices x,
                   double beta) {
  HostSide& here = host_side();
  here.run(
      [&](Engine& cpu) { cpu.axpby(here.both(y), alphas, here.in(x), beta); });
}

void Engine::sort(Orders orders, ConstMatrices values, bool falling) {
  host_side().call(&Engine::sort, Out(orders), values, falling);
}

void Engine::permute_columns(Matrices to, ConstMatrices from,
                             ConstOrders order) {
  host_side().call(&Engine::permute_columns, Out(to), from, order);
}

void Engine::permute_rows(Matrices to, ConstMatrices from, ConstOrders order) {
  host_side().call(&Engine::permute_rows, Out(to), from, order);
}

void Engine::raise_values(Matrices values, std::span<const double> floors,
                          bool shift, double exponent) {
  host_side().call(&Engine::raise_values, values, floors, shift, exponent);
}

void Engine::inverse_roots(Matrices to, ConstMatrices from, double scale,
                           double floor) {
  host_side().call(&Engine::inverse_roots, Out(to), from, scale, floor);
}

void Engine::scale_columns(Matrices to, ConstMatrices from,
                           ConstMatrices factors) {
  host_side().call(&Engine::scale_columns, Out(to), from, factors);
}

void Engine::scale_to_norm(Matrices a, ConstMatrices reference,
                           double epsilon) {
  host_side().call(&Engine::scale_to_norm, a, reference, epsilon);
}

void Engine::limit_norms(Matrices a, double norm, double epsilon) {
  host_side().call(&Engine::limit_norms, a, norm, epsilon);
}

// The stages of rules.

void Engine::momentum(const MomentumStage& stage, int64_t count) {
  HostSide& here = host_side();
  here.run([&](Engine& cpu) {
    MomentumStage copied = stage;
    copied.grad = here.in(stage.grad, count);
    copied.weights = here.in(stage.weights, count);
    copied.momentum = here.both(stage.momentum, count);
    copied.out = here.out(stage.out, count);
    cpu.momentum(copied, count);
  });
}

void Engine::apply(Run weights, ConstRun update, const Apply& apply,
                   int64_t count, uint16_t* rounded) {
  HostSide& here = host_side();
  here.run([&](Engine& cpu) {
    cpu.apply(here.both(weights, count), here.in(update, count), apply, count,
              here.out(rounded, count));
  });
}

void Engine::adam(ConstRun grad, Run m, Run v, Run out,
                  const AdamCoefficients& adam, int64_t count) {
  HostSide& here = host_side();
  here.run([&](Engine& cpu) {
    cpu.adam(here.in(grad, count), here.both(m, count), here.both(v, count),
             here.out(out, count), adam, count);
  });
}

void Engine::adam_apply(std::span<const AdamRuns> tensors,
                        const AdamCoefficients& adam, const Apply& apply) {
  HostSide& here = host_side();
  for (const AdamRuns& t : tensors)
    here.run([&](Engine& cpu) {
      const AdamRuns copied = {.grad = here.in(t.grad, t.count),
                               .m = here.both(t.m, t.count),
                               .v = here.both(t.v, t.count),
                               .weights = here.both(t.weights, t.count),
                               .count = t.count,
                               .rounded = here.out(t.rounded, t.count)};
      cpu.adam_apply(std::span(&copied, 1), adam, apply);
    });
}

void Engine::round_weights(uint16_t* to, const float* from, int64_t count) {
  HostSide& here = host_side();
  here.run([&](Engine& cpu) {
    cpu.round_weights(here.out(to, count), here.in(from, count), count);
  });
}

void Engine::split_masters(uint16_t* weights, uint16_t* remainders,
                           const float* from, int64_t count) {
  HostSide& here = host_side();
  here.run([&](Engine& cpu) {
    cpu.split_masters(here.out(weights, count), here.out(remainders, count),
                      here.in(from, count), count);
  });
}

void Engine::join_masters(float* to, const uint16_t* weights,
                          const uint16_t* remainders, int64_t count) {
  HostSide& here = host_side();
  const auto halves = [&](const uint16_t* there) {
    const ConstRun run{reinterpret_cast<const std::byte*>(there), DType::kBf16};
    return reinterpret_cast<const uint16_t*>(here.in(run, count).data);
  };
  here.run([&](Engine& cpu) {
    cpu.join_masters(elements<float>(here.out(run_of(to), count)),
                     halves(weights), halves(remainders), count);
  });
}

}  // namespace canzona
