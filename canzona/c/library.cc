// Functions of canzona.h that need no handle.
#include <algorithm>
#include <memory>
#include <string>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/c/calls.h"
#include "canzona/c/canzona.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/engine.h"
#include "canzona/report/models_view.h"
#include "canzona/rules/qk_clip.h"

extern "C" {

int32_t canzona_abi(void) { return CANZONA_ABI; }

const char* canzona_version(void) { return CANZONA_VERSION; }

const char* canzona_error(void) { return canzona::c::kept_error(); }

int32_t canzona_error_kind(void) { return canzona::c::kept_error_kind(); }

const char* canzona_rules(void) {
  return canzona::c::result_of([] {
    static const std::string text =
        canzona::report::to_json(canzona::report::rules_view(""));
    return text.c_str();
  });
}

const char* canzona_describe(const char* device) {
  return canzona::c::result_of([&] {
    canzona::c::require_argument(device, "canzona_describe", "device");
    const canzona::linalg::CurrentCudaDevice before(-1);
    thread_local std::string text;
    text = canzona::c::engine_of(device)->describe();
    return text.c_str();
  });
}

int canzona_qk_factors(const double* largest, int32_t heads, int32_t groups,
                       double tau, double alpha, int32_t alone,
                       double* factors) {
  return canzona::c::status_of([&] {
    canzona::c::require_argument(largest, "canzona_qk_factors", "largest");
    canzona::c::require_argument(factors, "canzona_qk_factors", "factors");
    const canzona::rules::QkFactors found = canzona::rules::qk_factors(
        {largest, canzona::index(std::max(heads, 0))}, groups,
        {.tau = tau, .alpha = alpha, .queries_alone = alone != 0});
    for (const auto* part : {&found.query, &found.query_rope, &found.key})
      factors = std::ranges::copy(*part, factors).out;
  });
}

}  // extern "C"
