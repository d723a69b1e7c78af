#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/memory.h"

namespace canzona {
namespace {

[[noreturn]] void refuse(std::string_view device) {
  throw UsageError(cat("device ", quoted(device), ": expected cpu or cuda",
                       did_you_mean(device, {"cpu", "cuda"})));
}

}  // namespace

std::unique_ptr<Engine> make_engine(std::string_view device) {
  if (device == "cpu") return make_cpu_engine();
  if (device == "cuda") return make_cuda_engine();
  refuse(device);
}

const MemoryOps& memory_ops(std::string_view device) {
  if (device == "cpu") return cpu_memory_ops();
  if (device == "cuda") return cuda_memory_ops();
  refuse(device);
}

}  // namespace canzona
