// Engines side by side, one thread each.
//
//   Lanes lanes(4, [] { return make_cpu_engine(); });
//   lanes.for_each(matrices.size(), [&](Engine& lane, int64_t i) { … });
//
// Items are assigned one by one, in order, to whichever lane is free; an item's
// result must not depend on the lane. The calling thread is lane 0.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "canzona/linalg/engine.h"

namespace canzona {

class Lanes {
 public:
  using Work = std::function<void(Engine& lane, int64_t item)>;

  Lanes(int num_lanes, const std::function<std::unique_ptr<Engine>()>& make);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  int num_lanes() const { return static_cast<int>(engines_.size()); }
  Engine& lane(int i) { return *engines_.at(static_cast<size_t>(i)); }

  // Returns when all items are done. If items throw, the exception of the one
  // with the lowest number is rethrown after all lanes have stopped.
  void for_each(int64_t num_items, const Work& work);

 private:
  struct Crew;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::unique_ptr<Crew> crew_;
};

}  // namespace canzona
