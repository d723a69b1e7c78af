#include "canzona/rules/runs.h"

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"

namespace canzona {

HostCopy::HostCopy(Engine& engine, Matrices one) : engine_(engine), one_(one) {
  if (one.data == nullptr) return;
  CANZONA_CHECK(one.count == 1 && one.contiguous(), one.count, " matrices of ",
                one.rows, "x", one.cols, ", ", one.row_stride, " apart");
  bytes_.resize(static_cast<size_t>(one.elements() * size_of(one.dtype)));
  engine_.download(bytes_.data(), one.data, std::ssize(bytes_));
}

Matrices HostCopy::view() {
  Matrices here = one_;
  if (one_.data != nullptr) here.data = bytes_.data();
  return here;
}

void HostCopy::put_back() const {
  if (one_.data == nullptr) return;
  engine_.upload(one_.data, bytes_.data(), std::ssize(bytes_));
}

void on_host(Engine& engine, std::span<const Run> runs, int64_t count,
             const std::function<void(std::span<float* const>)>& work) {
  const DeviceKind* kind = find_device_kind(engine.kind());
  const bool here = kind != nullptr && !kind->has_own_memory;
  const int64_t bytes = count * size_of(DType::kFp32);
  std::vector<std::vector<float>> copies;
  std::vector<float*> addresses;
  if (here) engine.synchronize();
  for (const Run& run : runs) {
    CANZONA_CHECK(run.dtype == DType::kFp32, to_string(run.dtype));
    if (here) {
      addresses.push_back(reinterpret_cast<float*>(run.data));
      continue;
    }
    std::vector<float>& copy = copies.emplace_back(static_cast<size_t>(count));
    engine.download(reinterpret_cast<std::byte*>(copy.data()), run.data, bytes);
    addresses.push_back(copy.data());
  }
  work(addresses);
  for (size_t i = 0; i < copies.size(); ++i)
    engine.upload(runs[i].data,
                  reinterpret_cast<const std::byte*>(copies[i].data()), bytes);
}

}  // namespace canzona
