// Shares of a GPU's multiprocessors: what CUDA calls green contexts.
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda/device.h"

namespace canzona::linalg {
namespace {

// The driver has had these functions under these names since CUDA 12.4.
constexpr unsigned kVersion = 12040;

// On every GPU a share consists of whole groups of this many multiprocessors.
constexpr unsigned kGranularity = 8;

struct ShareCalls {
  PFN_cuDeviceGetDevResource_v12040 of_device = nullptr;
  PFN_cuCtxGetDevResource_v12040 of_context = nullptr;
  PFN_cuDevSmResourceSplitByCount_v12040 split = nullptr;
  PFN_cuDevResourceGenerateDesc_v12040 describe = nullptr;
  PFN_cuGreenCtxCreate_v12040 create = nullptr;
  PFN_cuCtxFromGreenCtx_v12040 context_of = nullptr;
  PFN_cuCtxGetCurrent_v4000 get_current = nullptr;
  PFN_cuCtxSetCurrent_v4000 set_current = nullptr;

  bool exist() const {
    return of_device != nullptr && of_context != nullptr && split != nullptr &&
           describe != nullptr && create != nullptr && context_of != nullptr &&
           get_current != nullptr && set_current != nullptr;
  }
};

template <class Function>
void find(Function& function, const char* name, unsigned version = kVersion) {
  function = reinterpret_cast<Function>(driver_function(name, version));
}

const ShareCalls& share_calls() {
  static const ShareCalls calls = [] {
    ShareCalls found;
    find(found.of_device, "cuDeviceGetDevResource");
    find(found.of_context, "cuCtxGetDevResource");
    find(found.split, "cuDevSmResourceSplitByCount");
    find(found.describe, "cuDevResourceGenerateDesc");
    find(found.create, "cuGreenCtxCreate");
    find(found.context_of, "cuCtxFromGreenCtx");
    find(found.get_current, "cuCtxGetCurrent", 4000);
    find(found.set_current, "cuCtxSetCurrent", 4000);
    return found;
  }();
  return calls;
}

void check_driver(CUresult result, const char* name) {
  if (result != CUDA_SUCCESS)
    throw InternalError(
        cat(name, " failed with error ", static_cast<int>(result)));
}

// The same arguments always give the same share; shares do not overlap.
CUdevResource multiprocessors_of_share(CUdevice device, int number, int count) {
  CUdevResource all{};
  check_driver(share_calls().of_device(device, &all, CU_DEV_RESOURCE_TYPE_SM),
               "cuDeviceGetDevResource");
  const unsigned each = all.sm.smCount / static_cast<unsigned>(count) /
                        kGranularity * kGranularity;
  if (each == 0)
    throw UsageError(cat(
        "a GPU of ", all.sm.smCount, " multiprocessors cannot be split into ",
        count, " shares: expected at most ", all.sm.smCount / kGranularity));
  std::vector<CUdevResource> shares(static_cast<size_t>(count));
  auto made = static_cast<unsigned>(count);
  check_driver(
      share_calls().split(shares.data(), &made, &all, nullptr, 0, each),
      "cuDevSmResourceSplitByCount");
  if (made != static_cast<unsigned>(count))
    throw InternalError(cat("a GPU was split into ", made, " shares of ", each,
                            " multiprocessors, not ", count));
  return shares[static_cast<size_t>(number)];
}

CUcontext make_context(CUdevice device, int number, int count) {
  CUdevResource share = multiprocessors_of_share(device, number, count);
  CUdevResourceDesc description = nullptr;
  check_driver(share_calls().describe(&description, &share, 1),
               "cuDevResourceGenerateDesc");
  CUgreenCtx green = nullptr;
  check_driver(share_calls().create(&green, description, device,
                                    CU_GREEN_CTX_DEFAULT_STREAM),
               "cuGreenCtxCreate");
  CUcontext context = nullptr;
  check_driver(share_calls().context_of(&context, green), "cuCtxFromGreenCtx");
  return context;
}

// Contexts live as long as the process, because a thread destroys the stream of
// its own copies only when it ends, which is after its share.
CUcontext context_of_share(int device, int number, int count) {
  static std::mutex mutex;
  static auto& contexts = *new std::map<std::tuple<int, int, int>, CUcontext>;
  const std::lock_guard lock(mutex);
  CUcontext& context = contexts[{device, number, count}];
  if (context == nullptr)
    context = make_context(static_cast<CUdevice>(device), number, count);
  return context;
}

}  // namespace

CudaShare::CudaShare(int number, int count) {
  if (number < 0 || number >= count)
    throw InternalError(
        cat("share ", number, " of ", count, ": shares are numbered from 0"));
  cuda_device_info();  // throws UsageError if there is no GPU
  if (!share_calls().exist())
    throw UsageError(
        "this GPU's driver cannot split it: expected CUDA 12.4 or newer");
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaFree(nullptr), "cudaFree");  // makes the device's own context
  CUcontext before = nullptr;
  check_driver(share_calls().get_current(&before), "cuCtxGetCurrent");
  before_ = before;
  check_driver(
      share_calls().set_current(context_of_share(device, number, count)),
      "cuCtxSetCurrent");
}

CudaShare::~CudaShare() {
  share_calls().set_current(static_cast<CUcontext>(before_));
}

int usable_multiprocessors(int device) {
  int all = 0;
  check_cuda(
      cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, device),
      "cudaDeviceGetAttribute");
  if (!share_calls().exist()) return all;
  CUcontext context = nullptr;
  CUdevResource usable{};
  if (share_calls().get_current(&context) != CUDA_SUCCESS ||
      context == nullptr ||
      share_calls().of_context(context, &usable, CU_DEV_RESOURCE_TYPE_SM) !=
          CUDA_SUCCESS)
    return all;
  return static_cast<int>(usable.sm.smCount);
}

}  // namespace canzona::linalg
