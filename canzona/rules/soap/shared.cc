#include "canzona/rules/soap/shared.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/rules/refresh.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/together.h"

namespace canzona::rules {

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
    Matrices sums[Strips::kMostSums] = {total};
    for (int p = 1; p < TreeOrder::num_sums(strips_.count); ++p)
      sums[p] =
          arena.matrices(total.dtype, total.rows, total.cols, total.count);
    TreeOrder::add(
        strips_.count, [&](int s, int p) { add_strip(sums[p], s); },
        [&](int to, int from) {
          engine_.axpby(sums[to], 1.0, sums[from], 1.0);
        });
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

namespace {

// Finds bases where they are sent from.
class HelpedSoap : public HelpedTransform {
 public:
  HelpedSoap(Engine& engine, const SoapOptions& soap, const SoapLayout& layout,
             DType dtype)
      : HelpedTransform(
            engine, layout.blocking().sizes()[layout.helped_axis(soap)], dtype),
        soap_(soap),
        layout_(layout),
        helped_(layout.helped_axis(soap)) {}

  int64_t factor_bytes() const override { return bytes_of_basis(helped_); }

  void begin(const SharedStep& step) override {
    HelpedTransform::begin(step);
    call_ = {.step = step.step, .phase = step.phase, .part = {}};
  }

 protected:
  int64_t side(int axis) const { return layout_.blocking().sizes()[axis]; }
  int64_t bytes_of_basis(int axis) const {
    return soap_helper_factor_bytes(soap_, side(axis), size_of(dtype_));
  }
  bool refreshes() const { return soap_.is_refresh(call_.step, call_.phase); }
  ProductsScope products() const {
    return {engine_, products_of(soap_.splits_products)};
  }

  // New bases lie in `sent`.
  void put_in(SoapBasisChange& change, int axis, std::byte* sent) const {
    soap_put_in(change, {sent, dtype_}, side(axis));
    if (soap_.keeps_eigenvalues())
      change.found.eigenvalues = as_matrices(
          Run{sent + soap_factor_bytes(side(axis), size_of(dtype_)), dtype_}, 1,
          side(axis));
  }
  void decompose(int axis, const SoapFactor& kept, std::byte* sent,
                 SoapBasisChange& change) {
    soap_make_room(engine_, soap_, kept, change);
    put_in(change, axis, sent);
    soap_find_bases(engine_, soap_, call_, axis, kept, change);
    soap_send_flags(engine_, change, sent);
  }

  const SoapOptions& soap_;
  const SoapLayout layout_;
  const int helped_;  // axis of the helper's factor
  SoapCall call_;     // of the current step
};

class SoapOwner final : public HelpedSoap {
 public:
  SoapOwner(Engine& engine, Arena& arena, const SoapOptions& soap,
            const SoapLayout& layout, DType dtype)
      : HelpedSoap(engine, soap, layout, dtype),
        found_(arena.take(bytes_of_basis(1 - helped_))) {}

  MatrixShape piece() const override { return {side(0), side(1)}; }

  void sum(int, std::byte* sums) override {
    const ProductsScope scope_of_products = products();
    const Arena::Scope scope(engine_.arena());
    soap_add_statistics(engine_, soap_, call_, runs({nullptr, dtype_}));
    if (refreshes())
      engine_.take_triangle({sums, dtype_}, factor(helped_).factor);
  }

  void iterate(int, const std::byte*, std::byte*) override {
    if (!refreshes()) return;
    const ProductsScope scope_of_products = products();
    const Arena::Scope scope(engine_.arena());
    SoapBasisChange change(1);
    decompose(1 - helped_, factor(1 - helped_), found_, change);
  }

  // The update may be written to where the gradient is, which grafting needs
  // to the end.
  void multiply(int, const std::byte* sent, Run out) override {
    const ProductsScope scope_of_products = products();
    const Arena::Scope scope(engine_.arena());
    const int64_t elements = layout_.blocking().elements();
    const SoapBlockRuns whole =
        runs({engine_.arena().take(elements * size_of(dtype_)), dtype_});
    const bool first = soap_learns_first(soap_, call_.step);
    if (!first) soap_direction(engine_, soap_, call_, whole);
    for (int axis = 0; refreshes() && axis < 2; ++axis)
      take_basis(whole, axis,
                 axis == helped_ ? const_cast<std::byte*>(sent) : found_);
    if (first) soap_direction(engine_, soap_, call_, whole);
    engine_.copy(as_row(out, elements), as_row(ConstRun(whole.out), elements));
  }

 private:
  SoapFactor factor(int axis) const {
    const FactorPlace at =
        layout_.factors().place(layout_.blocking().block(0), axis);
    const int64_t n = at.side;
    SoapFactor kept;
    kept.factor = as_matrices(state(at.first_state), n, n);
    kept.basis = as_matrices(state(at.first_state + 1), n, n);
    if (soap_.keeps_eigenvalues())
      kept.eigenvalues = as_matrices(state(at.first_state + 2), 1, n);
    kept.failures = as_matrices(
        advanced(state(layout_.refresh_failures()), at.failures), 1, 1);
    return kept;
  }

  SoapBlockRuns runs(Run out) const {
    SoapBlockRuns runs;
    runs.dims = layout_.blocking().sizes().span();
    runs.factor_grad = runs.grad = piece_;
    if (soap_.has_first_moment()) runs.first_moment = state(0);
    runs.second_moment = state(layout_.exp_avg_sq());
    if (soap_.has_grafting_moment())
      runs.grafting_moment = state(layout_.grafting());
    runs.out = out;
    for (int axis = 0; axis < 2; ++axis)
      runs.factors[static_cast<size_t>(axis)] = factor(axis);
    return runs;
  }

  void take_basis(const SoapBlockRuns& whole, int axis, std::byte* sent) {
    SoapBasisChange change(1);
    put_in(change, axis, sent);
    soap_get_flags(engine_, change, sent);
    const SoapFactor& kept = whole.factors[static_cast<size_t>(axis)];
    if (axis == helped_)
      soap_count_failures(engine_, call_, axis, kept, change);
    soap_move_moments(engine_, soap_, call_, whole, axis, change);
    soap_take_bases(engine_, kept, change);
  }

  std::byte* found_;  // the owner's own basis, until the step takes both
};

class SoapHelper final : public HelpedSoap {
 public:
  using HelpedSoap::HelpedSoap;

  MatrixShape piece() const override { return {0, 0}; }
  void sum(int, std::byte*) override {}
  void multiply(int, const std::byte*, Run) override {}

  void iterate(int, const std::byte* triangle, std::byte* sent) override {
    if (!refreshes()) return;
    const ProductsScope scope_of_products = products();
    const Arena::Scope scope(engine_.arena());
    SoapFactor kept;
    kept.factor = engine_.arena().matrices(dtype_, side_, side_);
    kept.failures = as_matrices(state(0), 1, 1);
    kept.basis = as_matrices(state(1), side_, side_);
    engine_.put_triangle(kept.factor, {triangle, dtype_});
    SoapBasisChange change(1);
    decompose(helped_, kept, sent, change);
    soap_take_bases(engine_, kept, change);
  }
};

}  // namespace

std::unique_ptr<SharedTransform> help_soap(Engine& engine, Arena& arena,
                                           const SoapOptions& soap,
                                           const SoapLayout& layout,
                                           const TeamSeat& seat, DType dtype) {
  if (is_owner(seat))
    return std::make_unique<SoapOwner>(engine, arena, soap, layout, dtype);
  return std::make_unique<SoapHelper>(engine, soap, layout, dtype);
}

}  // namespace canzona::rules
