#include <algorithm>
#include <filesystem>
#include <limits>
#include <span>
#include <vector>

#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/data/llmc.h"
#include "canzona/data/megatron.h"
#include "canzona/data/sources.h"

namespace canzona {
namespace {

constexpr const char* kSynthetic = "synthetic";
constexpr int64_t kBlock = 1 << 16;  // tokens read at once
// As many are held against the vocabulary at once; of longer sources the rest
// as it is read.
constexpr int64_t kCheckedAtOnce = 1 << 24;
constexpr int64_t kDigestBlocks = 64;

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

std::string first_bytes(const std::string& path) {
  return read_file_range(path, 0, 16, "the tokens");
}

// The path without .bin or .idx.
std::string stem_of(const std::string& path) {
  for (const char* suffix : {".bin", ".idx"})
    if (path.ends_with(suffix)) return path.substr(0, path.size() - 4);
  return path;
}

bool is_megatron(const std::string& stem) {
  if (!is_file(stem + ".idx")) return false;
  const std::string head = first_bytes(stem + ".idx");
  return looks_like_megatron_index(std::as_bytes(std::span(head)));
}

std::unique_ptr<TokenSource> open_path(const std::string& path,
                                       const TokenOptions& options) {
  if (path == kSynthetic) return open_synthetic(options);
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return open_folder(path, options);
  const bool exists = std::filesystem::exists(path, error);
  if ((!exists || stem_of(path) != path) && is_megatron(stem_of(path)))
    return open_megatron(stem_of(path), options);
  const std::string head = first_bytes(path);
  if (looks_like_llmc(std::as_bytes(std::span(head))))
    return open_llmc(path, options);
  return open_text_file(path, options);
}

void check_tokens(const TokenSource& tokens) {
  std::vector<int32_t> block(kBlock);
  const int64_t count = std::min(tokens.size(), kCheckedAtOnce);
  for (int64_t first = 0; first < count; first += kBlock) {
    const auto length = std::min(kBlock, count - first);
    tokens.read(first, std::span(block).first(static_cast<size_t>(length)));
  }
}

}  // namespace

std::unique_ptr<TokenSource> open_tokens(const std::string& path,
                                         const TokenOptions& options) {
  if (options.vocab < 1 || options.vocab > std::numeric_limits<int32_t>::max())
    throw UsageError(cat("a vocabulary of ", options.vocab,
                         " tokens, expected 1 to 2147483647"));
  std::unique_ptr<TokenSource> tokens = open_path(path, options);
  if (tokens->size() == 0)
    throw UsageError(cat(quoted(path), ": expected tokens, found none (",
                         tokens->describe(), ")"));
  check_tokens(*tokens);
  return tokens;
}

// Blocks at even distances stand for what would take hours to read. Short
// sources are covered whole.
std::string digest_of(const TokenSource& tokens) {
  std::vector<int32_t> block(kBlock);
  std::string parts = cat(tokens.size());
  const int64_t last = std::max(tokens.size() - kBlock, int64_t{0});
  const int64_t blocks =
      std::min(kDigestBlocks, (tokens.size() + kBlock - 1) / kBlock);
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t first =
        blocks == 1
            ? 0
            : last / (blocks - 1) * i + last % (blocks - 1) * i / (blocks - 1);
    const auto length = std::min(kBlock, tokens.size() - first);
    const auto part = std::span(block).first(static_cast<size_t>(length));
    tokens.read(first, part);
    const auto bytes = std::as_bytes(part);
    parts +=
        sha256_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return sha256_hex(parts);
}

}  // namespace canzona
