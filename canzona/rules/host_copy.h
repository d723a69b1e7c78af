// One matrix of an engine's memory, brought into this process for a hook that
// looks at it or replaces it.
//
//   HostCopy copy(engine, basis.at(i));
//   hook->basis(part, copy.view(), …);
//   copy.put_back();
//
// Takes from the heap and waits for the engine. A view without data gives one
// without data.
#pragma once

#include <cstddef>
#include <vector>

#include "canzona/linalg/engine.h"

namespace canzona {

class HostCopy {
 public:
  HostCopy(Engine& engine, Matrices one);

  Matrices view();
  void put_back() const;

 private:
  Engine& engine_;
  Matrices one_;
  std::vector<std::byte> bytes_;
};

}  // namespace canzona
