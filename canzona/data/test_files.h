// Helpers for tests that write files of the data room.
//
//   TestFolder folder;
//   folder.write("a.bin", llmc_file<uint16_t>(magic, 1, {1, 2, 3}));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/test_folder.h"
#include "canzona/data/token_source.h"

namespace canzona::data {

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

}  // namespace canzona::data
