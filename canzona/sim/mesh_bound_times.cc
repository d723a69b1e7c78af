// The least time of an iteration (mesh_bounds.h): the threads of a rank, each
// with its operations one after the other.
#include <algorithm>

#include "canzona/sim/mesh_bounds.h"

namespace canzona::sim {
namespace {

// Slots delay the micro-batches after these in the same way, which is not
// counted.
constexpr int64_t kWholeMicroBatches = 4;

// The time of one leg after the other; `latencies` are 1 or 0 per leg.
double seconds_of(const OpTime& op, const Links& links, double latencies) {
  double sum = 0;
  for (const PortTime& leg : op.legs)
    sum += std::max(
        leg.intra > 0 ? leg.intra + latencies * links.latency(true) : 0,
        leg.inter > 0 ? leg.inter + latencies * links.latency(false) : 0);
  return sum;
}

struct ClassTimes {
  std::array<double, kNumModuleOps> seconds = {};
  std::array<PortTime, kNumModuleOps> ports = {};
};

// What a use of a module takes at least on each thread.
struct UseTimes {
  double compute = 0, gather = 0, scatter = 0, sum = 0;
  double published = 0;  // when its parameters are, after the step's begin
  bool completes = false;
};

// The threads of a rank, from the begin of one step to that of the next; each
// is at the time at which its last operation has ended. Every operation waits
// for the thread's last one, for those that it depends on and for its slot.
class RankThreads {
 public:
  RankThreads(const std::vector<UseTimes>& uses, const PoolSlots* slots)
      : uses_(uses), slots_(slots) {
    if (slots == nullptr) return;
    released_.assign(slots->gathers, 0);
    scattered_.assign(slots->scatters, 0);
  }

  void begin(double step, double bubble, double publications) {
    compute_ = step + bubble;
    gather_ = step;
    data_ = publications;
  }

  void pass(bool is_first, bool is_last) {
    for (const UseTimes& use : uses_) {
      double ready = is_first ? use.published : 0;
      if (use.gather > 0) {
        if (slots_ != nullptr)
          ready = std::max(ready, slot(released_, gathers_));
        ready = gather_ = std::max(gather_, ready) + use.gather;
      }
      if (use.scatter > 0 && slots_ != nullptr)
        ready = std::max(ready, slot(scattered_, scatters_));
      compute_ = std::max(compute_, ready) + use.compute;
      if (use.gather > 0 && slots_ != nullptr)
        slot(released_, gathers_++) = compute_;
      if (use.completes) complete(use, is_last);
    }
  }

  // Micro-batches of which nothing but their sum is known.
  void skip(int64_t micro_batches) {
    const auto times = static_cast<double>(micro_batches);
    for (const UseTimes& use : uses_) {
      compute_ += times * use.compute;
      gather_ += times * use.gather;
      scatter_ += times * use.scatter;
    }
  }

  // `sums` is what all sums take together.
  double end(double sums) const {
    return std::max({compute_, scatter_, data_, first_done_ + sums});
  }

 private:
  static double& slot(std::vector<double>& free, size_t number) {
    return free[number % free.size()];
  }

  void complete(const UseTimes& use, bool is_last) {
    double done = compute_;
    if (use.scatter > 0) {
      done = scatter_ = std::max(scatter_, done) + use.scatter;
      if (slots_ != nullptr) slot(scattered_, scatters_++) = done;
    }
    if (!is_last) return;
    if (first_done_ == 0) first_done_ = done;
    if (use.sum > 0) data_ = std::max(data_, done) + use.sum;
  }

  const std::vector<UseTimes>& uses_;
  const PoolSlots* slots_;
  double compute_ = 0, gather_ = 0, scatter_ = 0, data_ = 0, first_done_ = 0;
  // When the slot of every gather and scatter was given back.
  std::vector<double> released_, scattered_;
  size_t gathers_ = 0, scatters_ = 0;
};

}  // namespace

double MeshBounds::stage_seconds(size_t s, const MeshPace& pace,
                                 const std::vector<StageOps>* dense,
                                 const std::vector<StageOps>* experts,
                                 double step, const PoolSlots* slots) const {
  const Stage& stage = stages_[s];
  std::vector<ClassTimes> times(classes_.size());
  PortTime moved, summed, sent;  // of a micro-batch; of an iteration
  for (const auto* part : {dense, experts}) {
    if (part == nullptr) continue;
    summed = summed + (*part)[s].sums;
    sent = sent + (*part)[s].publications;
  }
  bool spans = false;
  for (const auto* part : {dense, experts})
    spans |= part != nullptr && (*part)[s].spans_modules;
  for (size_t c = 0; c < times.size(); ++c)
    for (size_t op = 0; op < kNumModuleOps; ++op) {
      OpTime both;
      for (const auto* part : {dense, experts})
        if (part != nullptr) both = both + (*part)[s].modules[c][op];
      times[c].seconds[op] =
          seconds_of(both, links_, spans && op >= kSum ? 0 : 1);
      times[c].ports[op] = both.ports();
    }
  std::vector<UseTimes> uses;
  std::vector<bool> is_known(stage.module_class.size(), false);
  double publications = 0;
  for (size_t u = 0; u < stage.uses.size(); ++u) {
    const ModuleUse& use = stage.uses[u];
    const auto module = static_cast<size_t>(use.module);
    const ClassTimes& own =
        times[static_cast<size_t>(stage.module_class[module])];
    UseTimes& out = uses.emplace_back(UseTimes{
        .compute = pace.use_seconds[s][u], .gather = own.seconds[kGather]});
    moved = moved + own.ports[kGather];
    if (!is_known[module]) {
      is_known[module] = true;
      publications += own.seconds[kPublish];
      out.published = publications;
      sent = sent + own.ports[kPublish];
    }
    if (!use.completes()) continue;
    out.completes = true;
    out.scatter = own.seconds[kScatter];
    out.sum = own.seconds[kSum];
    moved = moved + own.ports[kScatter];
    summed = summed + own.ports[kSum];
  }
  // The last module of forward waits for all publications.
  const auto first_backward =
      std::ranges::find_if(stage.uses, &ModuleUse::is_backward);
  publications = std::max(publications, sent.longest());
  if (first_backward != stage.uses.begin())
    uses[static_cast<size_t>(first_backward - stage.uses.begin()) - 1]
        .published = publications;
  RankThreads threads(uses, slots);
  threads.begin(step, pace.batch.bubble_seconds, publications);
  const int64_t n = pace.num_micro_batches;
  const int64_t whole = slots != nullptr ? kWholeMicroBatches : 2;
  for (int64_t i = 0; i < n; ++i) {
    threads.pass(i == 0, i == n - 1);
    if (i != whole - 2 || n <= whole) continue;
    threads.skip(n - whole);
    i = n - 2;
  }
  const auto all = static_cast<double>(n);
  const auto on_port = [&](double PortTime::*port) {
    return all * moved.*port + std::max(step + summed.*port, sent.*port);
  };
  return std::max({threads.end(summed.longest()), on_port(&PortTime::intra),
                   on_port(&PortTime::inter)});
}

namespace {

// The simulation adds up in another order.
constexpr double kRounding = 1 - 1e-9;

}  // namespace

LoadByStage MeshBounds::loads(const std::vector<StageOps>& ops) const {
  LoadByStage out = {};
  for (size_t s = 0; s < stages_.size(); ++s) {
    PortLoad& own = out[s];
    own.summed = ops[s].sums;
    own.sent = ops[s].publications;
    for (size_t c = 0; c < classes_.size(); ++c) {
      const auto& [uses, gradients, modules] = stages_[s].counts[c];
      const ModuleOps& of = ops[s].modules[c];
      own.moved = own.moved + uses * of[kGather].ports() +
                  gradients * of[kScatter].ports();
      own.summed = own.summed + modules * of[kSum].ports();
      own.sent = own.sent + modules * of[kPublish].ports();
    }
  }
  return out;
}

double MeshBounds::busiest_seconds(const MeshPace& pace,
                                   const LoadByStage& dense,
                                   const LoadByStage& experts,
                                   const SecondsByStage& step) const {
  const auto n = static_cast<double>(pace.num_micro_batches);
  double most = 0;
  for (size_t s = 0; s < stages_.size(); ++s) {
    most = std::max(
        most, step[s] + pace.batch.bubble_seconds + n * pace.pass_seconds[s]);
    for (const auto port : {&PortTime::intra, &PortTime::inter}) {
      const auto both = [&](PortTime PortLoad::*what) {
        return dense[s].*what.*port + experts[s].*what.*port;
      };
      most = std::max(most, n * both(&PortLoad::moved) +
                                std::max(step[s] + both(&PortLoad::summed),
                                         both(&PortLoad::sent)));
    }
  }
  return most * kRounding;
}

double MeshBounds::seconds(const MeshPace& pace,
                           const std::vector<StageOps>* dense,
                           const std::vector<StageOps>* experts,
                           const SecondsByStage& step,
                           const PoolSlots* slots) const {
  double most = 0;
  for (size_t s = 0; s < stages_.size(); ++s)
    most =
        std::max(most, stage_seconds(s, pace, dense, experts, step[s], slots));
  return most * kRounding;
}

}  // namespace canzona::sim
