#include "canzona/linalg/cuda_device.h"

#include <dlfcn.h>
#include <algorithm>
#include <array>
#include <cctype>

#include "canzona/base/text.h"

namespace canzona::linalg {
namespace {

// The four functions of NVML that are needed. It is part of the driver, which
// has no header for it.
struct Nvml {
  int (*init)() = nullptr;
  int (*get_count)(unsigned* count) = nullptr;
  int (*get_handle)(unsigned index, void** device) = nullptr;
  int (*get_uuid)(void* device, char* uuid, unsigned length) = nullptr;
};

bool open_nvml(Nvml& nvml) {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  const auto find = [&]<class Function>(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
  };
  return find("nvmlInit_v2", nvml.init) &&
         find("nvmlDeviceGetCount_v2", nvml.get_count) &&
         find("nvmlDeviceGetHandleByIndex_v2", nvml.get_handle) &&
         find("nvmlDeviceGetUUID", nvml.get_uuid);
}

bool is_place(const std::string& word, size_t num_gpus) {
  return !word.empty() && word.size() < 6 &&
         std::ranges::all_of(word,
                             [](unsigned char c) { return isdigit(c); }) &&
         static_cast<size_t>(std::stoi(word)) < num_gpus;
}

}  // namespace

std::vector<std::string> all_gpus() {
  std::vector<std::string> gpus;
  Nvml nvml;
  unsigned count = 0;
  if (!open_nvml(nvml) || nvml.init() != 0 || nvml.get_count(&count) != 0)
    return gpus;
  for (unsigned i = 0; i < count; ++i) {
    void* device = nullptr;
    std::array<char, 96> uuid{};
    if (nvml.get_handle(i, &device) == 0 &&
        nvml.get_uuid(device, uuid.data(), uuid.size()) == 0)
      gpus.emplace_back(uuid.data());
  }
  return gpus;
}

std::vector<std::string> visible_gpus(const char* variable,
                                      const std::vector<std::string>& all) {
  if (variable == nullptr) return all;
  std::vector<std::string> gpus;
  for (const std::string& word : split_text(variable, ',')) {
    if (word.empty() || word.front() == '-') break;
    gpus.push_back(is_place(word, all.size())
                       ? all[static_cast<size_t>(std::stoi(word))]
                       : word);
  }
  return gpus;
}

}  // namespace canzona::linalg
