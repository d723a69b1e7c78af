// Files for tests of the data room, in a folder that goes with the object.
//
//   TestFolder folder;
//   std::string path = folder.write("a.txt", "text");
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/data/token_source.h"

namespace canzona {

class TestFolder {
 public:
  TestFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "canzona_data_XXXXXX")
            .string();
    path_ = ::mkdtemp(name.data());
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

template <class Number>
void put(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// 1024 bytes and the tokens.
template <class Number>
std::string llmc_file(int32_t magic, int32_t version,
                      const std::vector<Number>& tokens) {
  std::string bytes;
  put(bytes, magic);
  put(bytes, version);
  put(bytes, static_cast<int32_t>(tokens.size()));
  bytes.resize(1024, '\0');
  for (Number token : tokens) put(bytes, token);
  return bytes;
}

struct MegatronSequence {
  int32_t length;
  int64_t byte;
};
inline std::string megatron_idx(
    uint8_t type, const std::vector<MegatronSequence>& sequences) {
  std::string bytes("MMIDIDX\0\0", 9);
  put(bytes, uint64_t{1});
  put(bytes, type);
  put(bytes, uint64_t{sequences.size()});
  put(bytes, uint64_t{sequences.size() + 1});
  for (const MegatronSequence& s : sequences) put(bytes, s.length);
  for (const MegatronSequence& s : sequences) put(bytes, s.byte);
  for (size_t i = 0; i <= sequences.size(); ++i)
    put(bytes, static_cast<int64_t>(i));
  return bytes;
}

inline std::vector<int32_t> all_tokens(const TokenSource& tokens) {
  std::vector<int32_t> all(static_cast<size_t>(tokens.size()));
  tokens.read(0, all);
  return all;
}

inline std::vector<int32_t> bytes_of(std::string_view text) {
  std::vector<int32_t> all;
  for (char c : text) all.push_back(static_cast<unsigned char>(c));
  return all;
}

}  // namespace canzona
