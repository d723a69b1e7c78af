#include "canzona/data/folder_files.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/data/text_bytes.h"

namespace canzona {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::error_code& error) {
  throw UsageError(
      cat("cannot read the folder ", quoted(path), ": ", error.message()));
}

// Whatever is in it, hidden entries apart.
std::vector<fs::path> entries(const std::string& folder, int64_t max_entries,
                              FolderFiles& out) {
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  if (error) fail(folder, error);
  std::vector<fs::path> paths;
  while (at != fs::recursive_directory_iterator()) {
    const bool hidden = at->path().filename().native().starts_with('.');
    const bool is_folder = fs::is_directory(at->symlink_status());
    if (hidden) at.disable_recursion_pending();
    if (hidden) ++out.num_other;
    if (!hidden && !is_folder) paths.push_back(at->path());
    if (std::cmp_greater(paths.size() + 1, max_entries))
      throw UsageError(cat("the folder ", quoted(folder), " has more than ",
                           max_entries, " entries"));
    const std::string last = at->path().string();
    at.increment(error);
    if (error) fail(last, error);
  }
  return paths;
}

void add_file(const fs::path& path, FolderFiles& out) {
  std::error_code error;
  // A link to a folder is a folder here.
  if (fs::status(path, error).type() != fs::file_type::regular) {
    ++out.num_other;
    return;
  }
  const std::string name = path.string();
  const std::string head =
      read_file_range(name, 0, static_cast<int64_t>(kLookedAt), "the text");
  if (head.empty()) {
    ++out.num_other;
  } else if (find_nul(std::as_bytes(std::span(head)))) {
    ++out.num_binary;
  } else {
    out.files.push_back({name, file_size(name, "the text")});
  }
}

}  // namespace

FolderFiles list_text_files(const std::string& folder, int64_t max_entries) {
  FolderFiles out;
  std::vector<fs::path> paths = entries(folder, max_entries, out);
  std::ranges::sort(paths, {}, [](const fs::path& path) -> const std::string& {
    return path.native();
  });
  for (const fs::path& path : paths) add_file(path, out);
  return out;
}

}  // namespace canzona
