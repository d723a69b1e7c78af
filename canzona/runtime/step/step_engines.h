// The engines on which one rank steps: how work is spread over lanes, and how
// it is left out if the gradients are not accepted.
//
//   StepEngines engines({&engine}, nullptr);
//   engines.skip = check.skip();
//   engines.repeated([&] { rule.transform(engine, …); });
//
// Values; used by one thread. Engines and lanes must outlive it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "canzona/linalg/lanes.h"

namespace canzona::runtime {

struct StepEngines {
  // Without lanes the first engine leads, and the matrices that are whole here
  // are distributed over all engines, of the same device, by shape.
  StepEngines(std::vector<Engine*> the_engines, Lanes* the_lanes)
      : all(std::move(the_engines)),
        lead(*all.at(0)),
        lanes(the_lanes),
        is_immediate(lead.make_lane() == nullptr &&
                     lead.memory_ops().is_host()) {}

  const std::vector<Engine*> all;
  Engine& lead;  // used by the calling thread
  Lanes* const lanes;
  // True if calls have ended when they return and memory is host memory.
  const bool is_immediate;
  // In the engine's memory: nonzero if the step must leave weights and states
  // unchanged.
  const int32_t* skip = nullptr;

  // The number of elements that pass through scratch at once: small on CPUs, so
  // that caches hold them.
  int64_t chunk() const {
    return is_immediate ? int64_t{1} << 15 : int64_t{1} << 26;
  }

  // Gives every lane as much scratch as the largest one has, because which lane
  // takes a matrix depends on timing.
  void level_scratch() const {
    if (lanes == nullptr) return;
    int64_t most = 0;
    for (int i = 0; i < lanes->num_lanes(); ++i)
      most = std::max(most, lanes->lane(i).arena().reserved());
    for (int i = 0; i < lanes->num_lanes(); ++i)
      lanes->lane(i).arena().reserve(most);
  }

  // Calls work(engine, i) for each of `count` items, on all lanes.
  template <class Work>
  void for_each(int64_t count, const Work& work) const {
    if (lanes != nullptr && count > 1)
      return lanes->for_each(count, std::cref(work));
    for (int64_t i = 0; i < count; ++i) work(lead, i);
  }
  // Runs element-wise work that changes weights or states.
  template <class Work>
  void guarded(const Work& work) const {
    if (!is_immediate) return lead.guard(skip, std::cref(work));
    if (*skip == 0) work();
  }
  // The same for any calls, on memory whose addresses do not change.
  template <class Work>
  void repeated(const Work& work) const {
    if (is_immediate) return guarded(work);
    const auto inside = [&] { lead.if_zero(skip, std::cref(work)); };
    lead.repeat(std::cref(inside));
  }
};

}  // namespace canzona::runtime
