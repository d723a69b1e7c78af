// Replaces toml.cc if toml++ is missing: TOML is refused, JSON works.
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/train/settings.h"

namespace canzona::train {

Settings toml_settings(std::string_view, const std::string& file) {
  throw UsageError(cat(quoted(file),
                       ": this program was built without a TOML parser; give "
                       "the configuration as JSON, or install "
                       "libtomlplusplus-dev and build again"));
}

}  // namespace canzona::train
