// The few functions of cuDNN that its frontend and we call lead to the library
// that was loaded.
#include "canzona/model/cuda/cudnn_library.h"

#include <cudnn.h>
#include <dlfcn.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <sstream>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::model {
namespace {

constexpr const char* kName = "libcudnn.so.9";

// Returns where the build found headers, and python3's packages (PyTorch's).
std::vector<std::string> likely_folders() {
  std::vector<std::string> folders = {CANZONA_CUDNN_FOLDER};
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen("python3 -c 'import nvidia; print(*nvidia.__path__, sep=\"\\n\")' "
            "2>/dev/null",
            "r"),
      pclose);
  if (pipe == nullptr) return folders;
  std::string text;
  char part[256];
  while (fgets(part, sizeof part, pipe.get()) != nullptr) text += part;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    folders.push_back(line + "/cudnn/lib");
  return folders;
}

void* open_library() {
  if (void* found = dlopen(kName, RTLD_NOW | RTLD_LOCAL)) return found;
  std::string tried = dlerror();
  for (const std::string& folder : likely_folders()) {
    const std::string path = cat(folder, "/", kName);
    if (void* found = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
    tried += cat("; ", dlerror());
  }
  throw UsageError(
      cat("attention needs cuDNN 9, which was not found (", tried,
          "); install it (PyTorch brings it; `pip install nvidia-cudnn-cu13`), "
          "name its folder in LD_LIBRARY_PATH, or use --attention plain"));
}

void* library() {
  static void* const opened = open_library();
  return opened;
}

template <class Function>
Function* find(const char* name, Function*) {
  void* found = dlsym(library(), name);
  if (found == nullptr)
    throw UsageError(cat("cuDNN has no function ", name, ": ", dlerror(),
                         "; use cuDNN 9, or --attention plain"));
  return reinterpret_cast<Function*>(found);
}

}  // namespace

void load_cudnn() { library(); }

std::string cudnn_version() {
  const size_t version = cudnnGetVersion();
  return cat("cuDNN ", version / 10000, ".", version / 100 % 100, ".",
             version % 100);
}

}  // namespace canzona::model

// NOLINTBEGIN: these are cuDNN's names
#define CANZONA_LEAD(name, result, parameters, arguments)                   \
  extern "C" __attribute__((visibility("hidden"))) result name parameters { \
    static auto* const function = canzona::find(#name, &name);              \
    return function arguments;                                              \
  }
CANZONA_LEAD(cudnnGetVersion, size_t, (), ())
CANZONA_LEAD(cudnnGetErrorString, const char*, (cudnnStatus_t status), (status))
CANZONA_LEAD(cudnnGetLastErrorString, void, (char* message, size_t size),
             (message, size))
CANZONA_LEAD(cudnnCreate, cudnnStatus_t, (cudnnHandle_t * handle), (handle))
CANZONA_LEAD(cudnnDestroy, cudnnStatus_t, (cudnnHandle_t handle), (handle))
CANZONA_LEAD(cudnnSetStream, cudnnStatus_t,
             (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))
CANZONA_LEAD(cudnnGetStream, cudnnStatus_t,
             (cudnnHandle_t handle, cudaStream_t* stream), (handle, stream))
CANZONA_LEAD(cudnnBackendCreateDescriptor, cudnnStatus_t,
             (cudnnBackendDescriptorType_t type,
              cudnnBackendDescriptor_t* descriptor),
             (type, descriptor))
CANZONA_LEAD(cudnnBackendDestroyDescriptor, cudnnStatus_t,
             (cudnnBackendDescriptor_t descriptor), (descriptor))
CANZONA_LEAD(cudnnBackendFinalize, cudnnStatus_t,
             (cudnnBackendDescriptor_t descriptor), (descriptor))
CANZONA_LEAD(cudnnBackendSetAttribute, cudnnStatus_t,
             (cudnnBackendDescriptor_t descriptor,
              cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, int64_t count,
              const void* elements),
             (descriptor, name, type, count, elements))
CANZONA_LEAD(cudnnBackendGetAttribute, cudnnStatus_t,
             (cudnnBackendDescriptor_t const descriptor,
              cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count,
              void* elements),
             (descriptor, name, type, wanted, count, elements))
CANZONA_LEAD(cudnnBackendExecute, cudnnStatus_t,
             (cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
              cudnnBackendDescriptor_t pack),
             (handle, plan, pack))
#undef CANZONA_LEAD
// NOLINTEND
