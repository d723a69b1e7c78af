#include "canzona/conformance/replay.h"

#include <cmath>
#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/conformance/injection.h"
#include "canzona/conformance/option_reader.h"
#include "canzona/conformance/state_names.h"
#include "canzona/conformance/tensor_memory.h"
#include "canzona/conformance/translate.h"

namespace canzona {
namespace {

std::unique_ptr<Rule> make_replayed_rule(const Fixture& fixture,
                                         const Translation& ours) {
  const DType dtype = fixture.dtype == "f64" ? DType::kFp64 : DType::kFp32;
  return supported(
      [&] { return make_rule(fixture.rule, ours.options, dtype); });
}

class Replay {
 public:
  Replay(Engine& engine, const Fixture& fixture, const Translation& ours,
         const CheckOptions& options)
      : fixture_(fixture),
        learning_rates_(ours.learning_rates),
        slack_(options.slack_of(fixture.dtype)),
        rule_(make_replayed_rule(fixture, ours)),
        stages_(engine, *rule_, fixture.tensor("param.0").dims),
        whole_(engine, *rule_, fixture.tensor("param.0").dims),
        names_(make_state_names(*rule_, fixture.tensor("param.0").dims)) {
    for (const auto& [name, tensor] : fixture.tensors) {
      const auto parsed = parse_tensor_name(name);
      if (parsed && !parsed->inject && parsed->what != "grad")
        expected_.emplace(parsed->step, std::pair(*parsed, &tensor));
    }
  }

  Findings run() {
    Findings ignored;  // of what the other run has found already
    Injection injection(fixture_, *rule_, *names_, stages_, findings_);
    Injection repeated(fixture_, *rule_, *names_, whole_, ignored);
    const bool injects = fixture_.injected;
    for (TensorMemory* memory : {&stages_, &whole_})
      memory->set(memory->weights(), fixture_.tensor("param.0").values);
    for (int64_t t = 1; t <= fixture_.steps; ++t) {
      const Step step{t, learning_rates_[static_cast<size_t>(t - 1)]};
      const std::vector<double>& grad = fixture_.tensor(cat("grad.", t)).values;
      stages_.set(stages_.grad(), grad);
      whole_.set(whole_.grad(), grad);
      injection.begin(t);
      repeated.begin(t);
      stages_.step_by_stages(step, injects ? &injection : nullptr);
      whole_.step_as_one(step, injects ? &repeated : nullptr);
      injection.end();
      compare_step(t);
    }
    return findings_;
  }

 private:
  void compare_step(int64_t t) {
    const auto [begin, end] = expected_.equal_range(t);
    for (auto it = begin; it != end; ++it)
      compare(it->second.first, *it->second.second);
    const std::string different = stages_.difference(whole_);
    if (!different.empty())
      findings_.fail(cat("step ", t, ": the fused step leaves other bits in ",
                         different, " than the stages"));
  }

  void compare(const TensorName& name, const FixtureTensor& expected) {
    const auto tolerance = tolerance_of(fixture_, name);
    if (!tolerance) return;
    std::vector<double> got = values_of(name);
    std::vector<double> wanted = expected.values;
    if (got.empty())
      return findings_.fail(cat("there is no ", to_string(name)));
    if (got.size() != wanted.size())
      return findings_.fail(cat(to_string(name), " has ", got.size(),
                                " elements, the reference has ",
                                wanted.size()));
    if (!fixture_.injected)
      forgive_signs(name.what, expected.dims, got, wanted);
    findings_.add(to_string(name), deviation(got, wanted),
                  widened(*tolerance, slack_));
  }

  // Own eigenvectors may point either way.
  void forgive_signs(const std::string& what, const Dims& dims,
                     std::vector<double>& got, std::vector<double>& wanted) {
    if (what.starts_with("basis_"))
      match_column_signs(got, wanted, dims.back());
    const bool rotated = fixture_.rule == "soap" && fixture_.preset != "meta";
    if (what != "exp_avg" || !rotated) return;
    for (double& x : got) x = std::abs(x);
    for (double& x : wanted) x = std::abs(x);
  }

  // Empty if there is no such thing.
  std::vector<double> values_of(const TensorName& name) const {
    const auto flat = [&](ConstRun run) {
      return stages_.values(run, stages_.count());
    };
    if (name.what == "param") return flat(stages_.weights());
    const bool is_muon = fixture_.rule == "muon";
    if (is_muon && name.what == "ortho_in") return flat(stages_.fields()[0]);
    if (is_muon && name.what == "ortho_out") return flat(stages_.update());
    const int64_t block = std::max<int64_t>(name.block, 0);
    if (block >= names_->num_blocks()) return {};
    if (const auto view = names_->find(block, name.what))
      return gather(stages_, *view);
    if (name.what.starts_with("eigval_"))
      return estimates(block, name.what.substr(7));
    return {};
  }

  // Eigenvalues that the rule does not keep, from what it does.
  std::vector<double> estimates(int64_t block, const std::string& axis) const {
    const auto factor = names_->find(block, "factor_" + axis);
    const auto basis = names_->find(block, "basis_" + axis);
    if (!factor || !basis) return {};
    return eigenvalue_estimates(gather(stages_, *basis),
                                gather(stages_, *factor), basis->dims[0]);
  }

  const Fixture& fixture_;
  std::vector<double> learning_rates_;
  double slack_;
  std::unique_ptr<Rule> rule_;
  TensorMemory stages_;
  TensorMemory whole_;
  std::unique_ptr<StateNames> names_;
  std::multimap<int64_t, std::pair<TensorName, const FixtureTensor*>> expected_;
  Findings findings_;
};

}  // namespace

Findings replay(Engine& engine, const Fixture& fixture,
                const CheckOptions& options) {
  const Translation ours =
      translate(fixture, options.newton_schulz, options.device);
  return Replay(engine, fixture, ours, options).run();
}

}  // namespace canzona
