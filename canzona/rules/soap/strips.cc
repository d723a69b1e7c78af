#include "canzona/rules/soap/strips.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/rules/axes.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/together.h"

namespace canzona {

SoapStrips soap_strips(MatrixShape shape, const SoapCut& cut,
                       const TeamSeat& seat) {
  CANZONA_CHECK(seat.members >= 1 && cut.strips % seat.members == 0 &&
                    seat.member >= 0 && seat.member < seat.members,
                "member ", seat.member, " of ", seat.members, " with ",
                cut.strips, " strips");
  SoapStrips own;
  own.dims = {shape.rows, shape.cols};
  own.axis = cut.axis;
  own.count = cut.strips / seat.members;
  int64_t& across = own.dims[static_cast<size_t>(1 - cut.axis)];
  for (int s = 0; s <= own.count; ++s)
    own.at[static_cast<size_t>(s)] =
        strip_border(across, cut.strips, own.count * seat.member + s) -
        strip_border(across, cut.strips, own.count * seat.member);
  across = own.at[static_cast<size_t>(own.count)];
  return own;
}

namespace {

// The work on the strips of some matrices that lie one after another.
class StripStep {
 public:
  StripStep(Engine& engine, const SoapOptions& soap, const SoapCall& call,
            const SoapStrips& strips, const SoapBlockRuns& tensors)
      : engine_(engine),
        soap_(soap),
        call_(call),
        strips_(strips),
        tensors_(tensors),
        whole_(AxisSizes(strips.dims), Blocking::kUncut) {}

  // Sets `total` to the sum of the strips' statistics by the tree.
  void sum(Matrices total) {
    Arena& arena = engine_.arena();
    const Arena::Scope scope(arena);
    Matrices sums[TreeOrder::kSums] = {total};
    for (int p = 1; p <= TreeOrder::index(strips_.count - 1); ++p)
      sums[p] =
          arena.matrices(total.dtype, total.rows, total.cols, total.count);
    for (int s = 0; s < strips_.count; ++s) {
      int p = TreeOrder::index(s);
      add_strip(sums[p], s);
      for (; p > TreeOrder::last(s); --p)
        engine_.axpby(sums[p - 1], 1.0, sums[p], 1.0);
    }
  }

  // Writes the update, and the moments' part of the gradient.
  void move() {
    for_each_strip([&](const TensorBlock& strip) {
      SoapBlockRuns runs = apart(strip);
      runs.grad = copied(tensors_.grad, strip);
      runs.out = taken(strip);
      soap_direction(engine_, soap_, call_, runs);
      put_back(runs, strip);
      copy_back(engine_, tensors_.out, runs.out, whole_, strip, tensors_.count);
    });
  }

  void move_moments(const SoapBasisChange& change) {
    for_each_strip([&](const TensorBlock& strip) {
      const SoapBlockRuns runs = apart(strip);
      soap_move_moments(engine_, soap_, call_, runs, strips_.axis, change);
      put_back(runs, strip);
    });
  }

 private:
  TensorBlock strip(int number) const {
    const auto at = static_cast<size_t>(number);
    const int across = 1 - strips_.axis;
    TensorBlock strip;
    strip.sizes = whole_.sizes();
    strip.start = AxisSizes(std::array<int64_t, 2>{});
    strip.start[across] = strips_.at[at];
    strip.sizes[across] = strips_.at[at + 1] - strips_.at[at];
    return strip;
  }

  template <class Work>
  void for_each_strip(const Work& work) {
    for (int s = 0; s < strips_.count; ++s) {
      const Arena::Scope scope(engine_.arena());
      work(strip(s));
    }
  }

  void add_strip(Matrices to, int number) {
    const Arena::Scope scope(engine_.arena());
    const TensorBlock own = strip(number);
    add_statistics(engine_, to, 0.0, 1.0, copied(tensors_.factor_grad, own),
                   own.sizes.span(), strips_.axis);
  }

  Run taken(const TensorBlock& strip) {
    const DType dtype = tensors_.out.dtype;
    const int64_t elements = tensors_.count * strip.sizes.product();
    return {engine_.arena().take(elements * size_of(dtype)), dtype};
  }
  Run copied(ConstRun from, const TensorBlock& strip) {
    if (from.data == nullptr) return {};
    const Run to = taken(strip);
    copy_out(engine_, to, from, whole_, strip, tensors_.count);
    return to;
  }

  // The moments of a strip, copied.
  SoapBlockRuns apart(const TensorBlock& strip) {
    SoapBlockRuns runs;
    runs.dims = strip.sizes.span();
    runs.count = tensors_.count;
    runs.factors = tensors_.factors;
    runs.first_moment = copied(tensors_.first_moment, strip);
    runs.second_moment = copied(tensors_.second_moment, strip);
    runs.out.dtype = tensors_.out.dtype;
    return runs;
  }
  void put_back(const SoapBlockRuns& runs, const TensorBlock& strip) {
    if (runs.first_moment.data != nullptr)
      copy_back(engine_, tensors_.first_moment, runs.first_moment, whole_,
                strip, tensors_.count);
    copy_back(engine_, tensors_.second_moment, runs.second_moment, whole_,
              strip, tensors_.count);
  }

  Engine& engine_;
  const SoapOptions& soap_;
  const SoapCall& call_;
  const SoapStrips& strips_;
  const SoapBlockRuns& tensors_;
  const Blocking whole_;
};

// F = keep·F + add·sum
void add_sum(Engine& engine, const SoapOptions& soap, int64_t step,
             Matrices factor, ConstMatrices sum) {
  const FactorWeights weights = soap_factor_weights(soap, step);
  engine.axpby(factor, weights.add, sum, weights.keep);
}

}  // namespace

void soap_update_by_strips(Engine& engine, const SoapOptions& soap,
                           const SoapCall& call, const SoapStrips& strips,
                           const SoapBlockRuns& tensors) {
  const SoapFactor& kept = tensors.factors[static_cast<size_t>(strips.axis)];
  StripStep step(engine, soap, call, strips, tensors);
  const auto learn_basis = [&] {
    const Arena::Scope scope(engine.arena());
    const Matrices total = engine.arena().matrices(
        kept.factor.dtype, strips.side(), strips.side(), tensors.count);
    step.sum(total);
    add_sum(engine, soap, call.step, kept.factor, total);
    if (!soap.is_refresh(call.step, call.phase)) return;
    SoapBasisChange change(tensors.count);
    soap_make_room(engine, soap, kept, change);
    soap_find_bases(engine, soap, call, strips.axis, kept, change);
    step.move_moments(change);
    soap_take_bases(engine, kept, change);
  };
  const bool first = soap_learns_first(soap, call.step);
  if (first) learn_basis();
  step.move();
  if (!first) learn_basis();
}

void soap_put_in(SoapBasisChange& change, Run factor, int64_t side) {
  change.found.basis = as_matrices(
      Run{factor.data + soap_factor_basis_at(side), factor.dtype}, side, side);
  change.found.order = {
      reinterpret_cast<int64_t*>(factor.data + soap_factor_order_at()), side,
      1};
  change.found.moved = change.moved.span();
}

void soap_send_flags(Engine& engine, const SoapBasisChange& change,
                     std::byte* factor) {
  const int64_t flags[kSoapFactorFlags] = {change.outcomes[0].succeeded,
                                           change.moved[0]};
  engine.upload(factor, reinterpret_cast<const std::byte*>(flags),
                sizeof(flags));
}

void soap_get_flags(Engine& engine, SoapBasisChange& change,
                    const std::byte* factor) {
  int64_t flags[kSoapFactorFlags];
  engine.download(reinterpret_cast<std::byte*>(flags), factor, sizeof(flags));
  change.outcomes[0].succeeded = flags[0] != 0;
  change.moved[0] = flags[1] != 0;
}

namespace {

class SharedSoap final : public SharedTransform {
 public:
  SharedSoap(Engine& engine, const SoapOptions& soap, const SoapStrips& strips,
             const TeamSeat& seat, DType dtype)
      : engine_(engine),
        soap_(soap),
        strips_(strips),
        seat_(seat),
        dtype_(dtype) {}

  MatrixShape piece() const override {
    return {strips_.dims[0], strips_.dims[1]};
  }
  int segments() const override { return 1; }
  int64_t part_bytes() const override { return 0; }
  int64_t sum_elements() const override { return side() * (side() + 1) / 2; }
  int64_t bytes_per_sum() const override { return size_of(dtype_); }
  int64_t bytes_per_rounded() const override { return size_of(dtype_); }
  int64_t factor_bytes() const override {
    return soap_factor_bytes(side(), size_of(dtype_));
  }

  void begin(const SharedStep& step) override {
    CANZONA_CHECK_EQ(step.states.size(), num_states(), "states of member ",
                     seat_.member);
    call_ = {.step = step.step, .phase = step.phase, .part = {}};
    std::ranges::copy(step.states, states_.begin());
  }

  void load(ConstRun piece, std::byte*) override { piece_ = piece; }
  bool normalize(const std::byte*, std::byte*) override { return true; }

  void sum(int, std::byte* sums) override {
    const ProductsScope products(engine_, products_of(soap_.splits_products));
    const Arena::Scope scope(engine_.arena());
    const Matrices total = square();
    const SoapBlockRuns runs = piece_runs({nullptr, dtype_});
    StripStep(engine_, soap_, call_, strips_, runs).sum(total);
    engine_.take_triangle({sums, dtype_}, total);
  }

  void round(int, const std::byte* sums, int64_t count,
             std::byte* rounded) override {
    engine_.copy(as_row(Run{rounded, dtype_}, count),
                 as_row(ConstRun{sums, dtype_}, count));
  }

  // New bases are found where they are sent from.
  void iterate(int, const std::byte* rounded, std::byte* factor) override {
    CANZONA_CHECK(seat_.head, "iterate on member ", seat_.member);
    const ProductsScope products(engine_, products_of(soap_.splits_products));
    const Arena::Scope scope(engine_.arena());
    const SoapFactor kept = heads_factor();
    const Matrices total = square();
    engine_.put_triangle(total, {rounded, dtype_});
    add_sum(engine_, soap_, call_.step, kept.factor, total);
    if (!refreshes()) return;
    SoapBasisChange change(1);
    soap_make_room(engine_, soap_, kept, change);
    soap_put_in(change, {factor, dtype_}, side());
    soap_find_bases(engine_, soap_, call_, strips_.axis, kept, change);
    if (kept.eigenvalues.data != nullptr && change.outcomes[0].succeeded)
      engine_.copy(kept.eigenvalues, change.found.eigenvalues);
    soap_send_flags(engine_, change, factor);
  }

  void multiply(int, const std::byte* factor, Run out) override {
    const ProductsScope products(engine_, products_of(soap_.splits_products));
    const Arena::Scope scope(engine_.arena());
    const SoapBlockRuns runs = piece_runs(out);
    StripStep step(engine_, soap_, call_, strips_, runs);
    const bool first = soap_learns_first(soap_, call_.step);
    if (!first) step.move();
    if (refreshes()) take_basis(const_cast<std::byte*>(factor), step);
    if (first) step.move();
  }

 private:
  int64_t side() const { return strips_.side(); }
  bool refreshes() const { return soap_.is_refresh(call_.step, call_.phase); }
  Matrices square() const {
    return engine_.arena().matrices(dtype_, side(), side());
  }

  // The order of SoapFacts::team_states.
  size_t num_moments() const { return soap_.has_first_moment() ? 2 : 1; }
  size_t num_states() const {
    if (!seat_.head) return num_moments() + 1;
    return num_moments() + (soap_.keeps_eigenvalues() ? 4 : 3);
  }
  Matrices state(size_t number, int64_t rows, int64_t cols) const {
    return as_matrices(states_[number], rows, cols);
  }
  Matrices basis() const {
    return state(num_moments() + (seat_.head ? 1 : 0), side(), side());
  }
  SoapFactor heads_factor() const {
    SoapFactor kept;
    kept.factor = state(num_moments(), side(), side());
    kept.basis = basis();
    if (soap_.keeps_eigenvalues())
      kept.eigenvalues = state(num_moments() + 2, 1, side());
    kept.failures = state(num_states() - 1, 1, 1);
    return kept;
  }

  SoapBlockRuns piece_runs(Run out) const {
    SoapBlockRuns runs;
    runs.dims = strips_.dims;
    runs.factor_grad = runs.grad = piece_;
    if (soap_.has_first_moment()) runs.first_moment = states_[0];
    runs.second_moment = states_[num_moments() - 1];
    runs.out = out;
    SoapFactor& kept = runs.factors[static_cast<size_t>(strips_.axis)];
    kept.basis = basis();
    kept.factor = kept.basis;  // says that this axis has one
    return runs;
  }

  void take_basis(std::byte* factor, StripStep& step) {
    SoapBasisChange change(1);
    soap_put_in(change, {factor, dtype_}, side());
    soap_get_flags(engine_, change, factor);
    step.move_moments(change);
    SoapFactor kept;
    kept.basis = basis();
    soap_take_bases(engine_, kept, change);
  }

  Engine& engine_;
  const SoapOptions& soap_;
  const SoapStrips strips_;
  const TeamSeat seat_;
  const DType dtype_;
  // These belong to the current step.
  SoapCall call_;
  ConstRun piece_{};
  std::array<Run, 6> states_{};
};

}  // namespace

std::unique_ptr<SharedTransform> share_soap(Engine& engine,
                                            const SoapOptions& soap,
                                            MatrixShape shape,
                                            const SoapCut& cut,
                                            const TeamSeat& seat, DType dtype) {
  return std::make_unique<SharedSoap>(
      engine, soap, soap_strips(shape, cut, seat), seat, dtype);
}

}  // namespace canzona
