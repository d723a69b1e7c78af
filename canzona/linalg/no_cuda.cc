// Takes the place of cuda/ in a build without CUDA.
#include "canzona/base/error.h"
#include "canzona/linalg/engine.h"

namespace canzona {

std::unique_ptr<Engine> make_cuda_engine() {
  throw UsageError(
      "this build has no CUDA; build on a machine with the CUDA toolkit, or "
      "use the CPU");
}

}  // namespace canzona
