// Fixtures: refused with a UsageError, or read and their options translated
// into those of a rule, which refuses them or tells its states.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "canzona/base/error.h"
#include "tests/conformance/fixture.h"
#include "tests/conformance/translate.h"
#include "canzona/rules/facts.h"

namespace {

void translate_all(const canzona::tests::Fixture& fixture) {
  if (fixture.rule == "ns") {
    canzona::tests::translate_newton_schulz(fixture, "fp32", "auto");
  } else if (!fixture.is_pure()) {
    const canzona::tests::Translation ours =
        canzona::tests::translate(fixture, "auto");
    canzona::make_rule_facts(fixture.rule, ours.options)
        ->tensor_states(fixture.tensor("param.0").dims);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    translate_all(canzona::tests::read_fixture(bytes, "x.safetensors"));
  } catch (const canzona::UsageError&) {
  } catch (const canzona::tests::Unsupported&) {
  }
  return 0;
}
