#include "canzona/base/paths.h"

#include <system_error>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

std::filesystem::file_type kind_of(const std::filesystem::path& path) {
  std::error_code reason;
  const auto kind = std::filesystem::status(path, reason).type();
  if (kind == std::filesystem::file_type::none)
    throw UsageError(cat("cannot access ", quoted(path.string(), 300), ": ",
                         reason.message()));
  return kind;
}

}  // namespace

bool is_there(const std::filesystem::path& path) {
  return kind_of(path) != std::filesystem::file_type::not_found;
}

bool is_folder(const std::filesystem::path& path) {
  return kind_of(path) == std::filesystem::file_type::directory;
}

}  // namespace canzona
