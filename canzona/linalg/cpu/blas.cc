#include "canzona/linalg/cpu/blas.h"

#include <algorithm>
#include <iostream>
#include <limits>
#include <mutex>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cpu/blas_environment.h"
#include "canzona/linalg/cpu/products.h"

namespace canzona::linalg {
namespace {

// "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH …" → "OpenBLAS 0.3.21"
std::string library_of(const std::string& config) {
  const std::vector<std::string> words = split_text(config, ' ');
  return words.size() < 2 ? config : words[0] + " " + words[1];
}

void warn_of_fallback(const BlasInfo& info) {
  std::cerr << cat("canzona: ", info.library,
                   " does not recognize this CPU and runs kernels for ",
                   info.core, ", several times slower; set OPENBLAS_CORETYPE=",
                   wanted_blas_core(), " before the program starts\n");
}

double thread_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

void begin_blas() {
  static std::once_flag once;
  std::call_once(once, [] {
    const BlasInfo info = blas_info();
    CANZONA_CHECK(info.config.find("USE64BITINT") == std::string::npos,
                  "OpenBLAS with 64-bit integers was linked: ", info.config);
    openblas_set_num_threads(1);
    if (info.fallback_core && !user_chose_blas_core()) warn_of_fallback(info);
  });
}

BlasInfo blas_info() {
  BlasInfo info;
  info.config = openblas_get_config();
  info.library = library_of(info.config);
  info.core = openblas_get_corename();
  info.fallback_core = is_fallback_core(info.core);
  info.shared = blas_is_shared();
  return info;
}

double measure_sgemm_gflops() {
  constexpr int64_t kSide = 1024;
  constexpr int kRounds = 6;
  begin_blas();
  std::vector<float> a(kSide * kSide, 0.5F);
  std::vector<float> b(kSide * kSide, 0.25F);
  std::vector<float> c(kSide * kSide);
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const double begin = thread_seconds();
    product<float>({c.data(), kSide, kSide, kSide}, 1,
                   {a.data(), kSide, kSide, kSide}, Op::kNone,
                   {b.data(), kSide, kSide, kSide}, Op::kNone, 0);
    best = std::min(best, thread_seconds() - begin);
  }
  return 2e-9 * kSide * kSide * kSide / best;
}

}  // namespace canzona::linalg
