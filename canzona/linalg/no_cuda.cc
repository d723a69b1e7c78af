// Replaces cuda/ in a build without CUDA.
#include "canzona/base/error.h"
#include "canzona/linalg/caller_capture.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/memory.h"
#include "canzona/linalg/number_stream.h"

namespace canzona::linalg {
namespace {

constexpr const char* kWhyNot =
    "this build has no CUDA; build with `make cuda` on a machine with the CUDA "
    "toolkit, or use the CPU";

}  // namespace

}  // namespace canzona::linalg

namespace canzona {
using namespace linalg;

std::unique_ptr<Engine> make_cuda_engine() { throw UsageError(kWhyNot); }
std::unique_ptr<Engine> make_cuda_engine(int /*device*/, void* /*stream*/,
                                         Memory* /*scratch*/) {
  throw UsageError(kWhyNot);
}

const MemoryOps& cuda_memory_ops() { throw UsageError(kWhyNot); }

}  // namespace canzona

namespace canzona::linalg {

std::unique_ptr<CapturedPart> add_to_capture(Engine& /*engine*/,
                                             CapturedWork /*work*/) {
  throw UsageError(kWhyNot);
}

void fill_cuda_numbers(Engine& /*engine*/, float* /*to*/,
                       const NumberStream& /*stream*/,
                       const NumberRows& /*rows*/) {
  throw UsageError(kWhyNot);
}

NumberSums sum_cuda_hashes(Engine& /*engine*/, const std::byte* /*from*/,
                           int64_t /*element_bytes*/, uint64_t /*seed*/,
                           const NumberRows& /*rows*/) {
  throw UsageError(kWhyNot);
}

bool cuda_is_built() { return false; }

std::optional<CudaDeviceInfo> find_cuda_device(std::string* why_not) {
  if (why_not != nullptr) *why_not = kWhyNot;
  return std::nullopt;
}

CurrentCudaDevice::CurrentCudaDevice(int /*number*/) {}
CurrentCudaDevice::~CurrentCudaDevice() = default;

CudaShare::CudaShare(int /*number*/, int /*count*/) {
  throw UsageError(kWhyNot);
}
CudaShare::~CudaShare() = default;

int64_t cuda_free_bytes() { return 0; }

CudaRates measure_cuda_rates() { throw UsageError(kWhyNot); }

}  // namespace canzona::linalg
