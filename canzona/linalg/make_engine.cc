#include <algorithm>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/memory.h"
#include "canzona/linalg/number_stream.h"

namespace canzona {
using namespace linalg;
namespace {

[[noreturn]] void refuse(std::string_view device) {
  throw UsageError(cat("device ", quoted(device), ": expected cpu or cuda",
                       did_you_mean(device, device_names())));
}

}  // namespace

std::unique_ptr<Engine> make_engine(std::string_view device) {
  if (device == "cpu") return make_cpu_engine();
  if (device == "cuda") return make_cuda_engine();
  refuse(device);
}

}  // namespace canzona

namespace canzona::linalg {

void fill_numbers(Engine& engine, float* to, const NumberStream& stream,
                  const NumberRows& rows) {
  if (engine.kind() == "cuda")
    return fill_cuda_numbers(engine, to, stream, rows);
  constexpr int64_t kAtOnce = 4096;
  float numbers[kAtOnce];
  for (int64_t r = 0; r < rows.rows; ++r) {
    const uint64_t first =
        rows.first + static_cast<uint64_t>(r * rows.stream_stride);
    for (int64_t j = 0; j < rows.count; j += kAtOnce) {
      const int64_t count = std::min(kAtOnce, rows.count - j);
      for (int64_t i = 0; i < count; ++i)
        numbers[i] = stream.number(
            bits_at(stream.seed, first + static_cast<uint64_t>(j + i)));
      engine.upload(reinterpret_cast<std::byte*>(to + r * rows.row_stride + j),
                    reinterpret_cast<const std::byte*>(numbers),
                    count * static_cast<int64_t>(sizeof(float)));
    }
  }
}

std::optional<NumberSums> sum_hashes(Engine& engine, const std::byte* from,
                                     int64_t element_bytes, uint64_t seed,
                                     const NumberRows& rows) {
  if (engine.kind() != "cuda") return {};
  return sum_cuda_hashes(engine, from, element_bytes, seed, rows);
}

}  // namespace canzona::linalg

namespace canzona {

const MemoryOps& memory_ops(std::string_view device) {
  if (device == "cpu") return cpu_memory_ops();
  if (device == "cuda") return cuda_memory_ops();
  refuse(device);
}

}  // namespace canzona
