#include "canzona/measure/device_memory.h"

#include <algorithm>

#include "canzona/base/random.h"

namespace canzona {
namespace {

constexpr int64_t kPool = int64_t{1} << 21;

const std::vector<float>& pool() {
  static const std::vector<float> numbers = [] {
    std::vector<float> all(kPool);
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<float>(normal_at(17, i));
    return all;
  }();
  return numbers;
}

}  // namespace

DeviceMemory::DeviceMemory(Engine& engine)
    : engine_(engine), arena_(engine.memory()), scope_(arena_) {}

Run DeviceMemory::zeros(int64_t count) {
  const int64_t bytes = count * size_of(DType::kFp32);
  const Run run{arena_.take(bytes), DType::kFp32};
  engine_.set_zero(run.data, bytes);
  return run;
}

Run DeviceMemory::copy_of(const std::vector<float>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  const Run run{arena_.take(bytes), DType::kFp32};
  engine_.upload(run.data, reinterpret_cast<const std::byte*>(values.data()),
                 bytes);
  return run;
}

// A period that shares no divisor with the lengths of matrices, so that no two
// rows are alike.
Run DeviceMemory::noise(int64_t count, uint64_t seed, double scale) {
  const Run run{arena_.take(count * size_of(DType::kFp32)), DType::kFp32};
  std::vector<float> scaled(pool());
  const auto first = static_cast<int64_t>(bits_at(seed, 0) % (kPool / 2));
  std::rotate(scaled.begin(), scaled.begin() + first, scaled.end());
  for (float& x : scaled) x *= static_cast<float>(scale);
  const int64_t period = kPool - 9;
  for (int64_t begin = 0; begin < count; begin += period)
    engine_.upload(run.data + begin * size_of(DType::kFp32),
                   reinterpret_cast<const std::byte*>(scaled.data()),
                   std::min(period, count - begin) * size_of(DType::kFp32));
  return run;
}

std::vector<float> DeviceMemory::read(ConstRun run, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  engine_.download(reinterpret_cast<std::byte*>(values.data()), run.data,
                   count * size_of(DType::kFp32));
  return values;
}

uint16_t* DeviceMemory::rounded(int64_t count) {
  return arena_.take_array<uint16_t>(count);
}

}  // namespace canzona
