#include "canzona/base/check.h"

#include "canzona/base/error.h"

namespace canzona {

void check_failed(const char* file, int line, const char* what,
                  const std::string& detail) {
  throw InternalError(
      cat(file, ":", line, ": check failed: ", what, ": ", detail));
}

}  // namespace canzona
