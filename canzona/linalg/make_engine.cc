#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/engine.h"

namespace canzona {

std::unique_ptr<Engine> make_engine(std::string_view device) {
  if (device == "cpu") return make_cpu_engine();
  if (device == "cuda") return make_cuda_engine();
  throw UsageError(cat("device ", quoted(device), ": expected cpu or cuda",
                       did_you_mean(device, {"cpu", "cuda"})));
}

}  // namespace canzona
