// The text files of a folder and all folders in it, in the order of their
// paths, byte by byte.
//
//   FolderFiles files = list_text_files("docs");
//
// Left out, and counted: what begins with a dot, files with a NUL (binary),
// empty files, links to nothing, pipes and devices. Links to files are read;
// links to folders are not followed, so that no loop can be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace canzona {

struct TextFile {
  std::string path;
  int64_t size = 0;
};

struct FolderFiles {
  std::vector<TextFile> files;
  int64_t num_binary = 0;
  int64_t num_other = 0;
};

// UsageError if a folder or file cannot be read, or there are more than
// `max_entries`.
FolderFiles list_text_files(const std::string& folder,
                            int64_t max_entries = 1'000'000);

}  // namespace canzona
