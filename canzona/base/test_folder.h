// Folders for tests, removed by the destructor.
//
//   TestFolder folder;
//   std::string path = folder.write("a/b.txt", "text");
//
//   class Things : public FolderTest {};     // one for each test
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "canzona/base/files.h"

namespace canzona {

class TestFolder {
 public:
  TestFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "canzona-test-XXXXXX")
            .string();
    if (::mkdtemp(name.data()) == nullptr)
      throw std::runtime_error("cannot make a folder " + name);
    path_ = name;
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  std::string path(std::string_view name = "") const {
    return name.empty() ? path_ : path_ + "/" + std::string(name);
  }
  // Creates the parent folders, too.
  std::string write(std::string_view name, std::string_view bytes) const {
    const std::filesystem::path file(path(name));
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file.string();
  }

 private:
  std::string path_;
};

class FolderTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  std::string bytes_of(const std::string& name) const {
    return read_file(path(name), 1 << 24, "test");
  }

  TestFolder folder_;
};

}  // namespace canzona
