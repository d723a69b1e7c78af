// Functions of canzona.h that need no handle.
#include <memory>
#include <string>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/c/calls.h"
#include "canzona/c/canzona.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/engine.h"
#include "canzona/report/models_view.h"

extern "C" {

int32_t canzona_abi(void) { return CANZONA_ABI; }

const char* canzona_version(void) { return CANZONA_VERSION; }

const char* canzona_error(void) { return canzona::kept_error(); }

int32_t canzona_error_kind(void) { return canzona::kept_error_kind(); }

const char* canzona_rules(void) {
  return canzona::result_of([] {
    static const std::string text = canzona::to_json(canzona::rules_view(""));
    return text.c_str();
  });
}

const char* canzona_describe(const char* device) {
  return canzona::result_of([&] {
    canzona::require_argument(device, "canzona_describe", "device");
    const canzona::CurrentCudaDevice before(-1);
    thread_local std::string text;
    text = canzona::engine_of(device)->describe();
    return text.c_str();
  });
}

}  // extern "C"
