// Says what is at a path.
//
//   if (!is_folder(run)) throw UsageError(cat("no folder ", quoted(run)));
//
// Links are followed. What the system does not tell is not taken for absence:
// these throw UsageError with path and reason if a folder on the way may not be
// entered, a name is too long or links lead in a circle. Any thread may call.
#pragma once

#include <filesystem>

namespace canzona {

bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

}  // namespace canzona
