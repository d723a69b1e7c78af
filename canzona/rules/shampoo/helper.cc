#include "canzona/rules/shampoo/helper.h"

#include <utility>

#include "canzona/rules/refresh.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/shampoo/batch_step.h"
#include "canzona/rules/together.h"

namespace canzona::rules {
namespace {

class HelpedShampoo : public HelpedTransform {
 public:
  HelpedShampoo(Engine& engine, const ShampooOptions& options, Dims dims,
                const ShampooLayout& layout, DType dtype)
      : HelpedTransform(
            engine, layout.blocking().sizes()[helped_axis(layout.factors())],
            dtype),
        options_(options),
        dims_(std::move(dims)),
        layout_(layout),
        helped_(helped_axis(layout.factors())) {}

  int64_t factor_bytes() const override {
    return kRootSentAt + side_ * side_ * size_of(dtype_);
  }

 protected:
  bool refreshes() const {
    return options_.is_refresh(step_.step, step_.phase);
  }
  Matrices sent_root(std::byte* sent) const {
    return as_matrices(Run{sent + kRootSentAt, dtype_}, side_, side_);
  }
  RefreshSite site(Matrices failures) const {
    RefreshSite site{.rule = "shampoo", .result = "root", .step = step_.step};
    site.part.axis = helped_;
    site.failures = failures;
    return site;
  }

  const ShampooOptions& options_;
  const Dims dims_;
  const ShampooLayout layout_;
  const int helped_;  // axis of the helper's factor
};

class ShampooOwner final : public HelpedShampoo {
 public:
  using HelpedShampoo::HelpedShampoo;

  MatrixShape piece() const override { return {dims_[0], dims_[1]}; }

  void sum(int, std::byte* sums) override {
    in_step({nullptr, dtype_},
            [](BatchStep& step) { step.add_statistics_of_blocks(); });
    if (refreshes()) engine_.take_triangle({sums, dtype_}, state_of_helped(0));
  }

  void iterate(int, const std::byte*, std::byte*) override {
    if (refreshes())
      in_step({nullptr, dtype_},
              [&](BatchStep& step) { step.refresh(1 - helped_); });
  }

  // The update may be written to where the gradient is, which grafting needs to
  // the end.
  void multiply(int, const std::byte* sent, Run out) override {
    const Arena::Scope scope(engine_.arena());
    if (refreshes()) take_root(const_cast<std::byte*>(sent));
    const int64_t elements = layout_.blocking().elements();
    const Run update{engine_.arena().take(elements * size_of(dtype_)), dtype_};
    in_step(update, [](BatchStep& step) { step.direction(); });
    engine_.copy(as_row(out, elements), as_row(ConstRun(update), elements));
  }

 private:
  template <class Work>
  void in_step(Run out, const Work& work) {
    const ProductsScope products(engine_,
                                 products_of(options_.splits_products));
    const Arena::Scope scope(engine_.arena());
    const Batch batch{.dims = dims_,
                      .fields = {&piece_, 1},
                      .out = out,
                      .states = step_.states,
                      .phase = step_.phase};
    BatchStep step(engine_, options_, layout_, step_.step, batch, {0, 1});
    work(step);
  }

  // The helper's factor, or, with 1, its root.
  Matrices state_of_helped(int number) const {
    const FactorPlace at = place();
    return as_matrices(state(at.first_state + number), at.side, at.side);
  }
  FactorPlace place() const {
    return layout_.factors().place(layout_.blocking().block(0), helped_);
  }

  void take_root(std::byte* sent) {
    int64_t found = 0;
    engine_.download(reinterpret_cast<std::byte*>(&found), sent, sizeof(found));
    const Outcome outcome{found != 0, "by its helper"};
    const Run counters = state(layout_.refresh_failures());
    count_failures(
        engine_, site(as_matrices(advanced(counters, place().failures), 1, 1)),
        {&outcome, 1});
    if (outcome.succeeded) engine_.copy(state_of_helped(1), sent_root(sent));
  }
};

class ShampooHelper final : public HelpedShampoo {
 public:
  using HelpedShampoo::HelpedShampoo;

  MatrixShape piece() const override { return {0, 0}; }
  void sum(int, std::byte*) override {}
  void multiply(int, const std::byte*, Run) override {}

  void iterate(int, const std::byte* triangle, std::byte* sent) override {
    if (!refreshes()) return;
    const ProductsScope exact(engine_,
                              exact_products_of(options_.splits_products));
    const Arena::Scope scope(engine_.arena());
    const Matrices factor = engine_.arena().matrices(dtype_, side_, side_);
    engine_.put_triangle(factor, {triangle, dtype_});
    const Average kept = factor_average(options_, step_.step);
    const PerTensor<Outcome> outcomes = refresh_roots(
        engine_,
        {.site = site(as_matrices(state(0), 1, 1)),
         .factor = factor,
         .correction = options_.bias_correction ? kept.correction : 1,
         .scales_by_trace = options_.trace_scaling,
         .power = options_.power(2, helped_),
         .root = sent_root(sent)},
        options_.root, nullptr);
    const int64_t found = outcomes[0].succeeded ? 1 : 0;
    engine_.upload(sent, reinterpret_cast<const std::byte*>(&found),
                   sizeof(found));
  }
};

}  // namespace

std::unique_ptr<SharedTransform> help_shampoo(Engine& engine,
                                              const ShampooOptions& options,
                                              MatrixShape shape,
                                              const TeamSeat& seat,
                                              DType dtype) {
  const Dims dims{shape.rows, shape.cols};
  const ShampooLayout layout(options, dims);
  if (is_owner(seat))
    return std::make_unique<ShampooOwner>(engine, options, dims, layout, dtype);
  return std::make_unique<ShampooHelper>(engine, options, dims, layout, dtype);
}

}  // namespace canzona::rules
