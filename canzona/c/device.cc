#include "canzona/c/device.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda_device.h"

namespace canzona {

NamedDevice read_device(std::string_view name) {
  constexpr std::string_view kNumbered = "cuda:";
  if (name == "cpu") return {};
  if (name == "cuda") return {true, 0};
  if (name.starts_with(kNumbered))
    return {true, static_cast<int>(parse_integer(name.substr(kNumbered.size()),
                                                 0, 1023, "the GPU's number"))};
  throw UsageError(cat("device ", quoted(name), ": expected cpu or cuda:N",
                       did_you_mean(name, {"cpu", "cuda:0"})));
}

std::unique_ptr<Engine> cuda_engine_of(const NamedDevice& device, void* stream,
                                       Memory* scratch) {
  // A caller's default stream is NULL, which for an engine means a stream of
  // its own.
  return make_cuda_engine(device.number,
                          stream == nullptr ? default_cuda_stream() : stream,
                          scratch);
}

std::unique_ptr<Engine> engine_of(std::string_view device) {
  const NamedDevice named = read_device(device);
  return named.is_cuda ? cuda_engine_of(named, nullptr, nullptr)
                       : make_cpu_engine();
}

}  // namespace canzona
