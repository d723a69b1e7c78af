// Text files of a folder as one list of bytes. Files are opened when they are
// read: a folder may have more of them than a process may map.
#include <algorithm>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/file_errors.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/data/folder_files.h"
#include "canzona/data/packed_tokens.h"
#include "canzona/data/sources.h"

namespace canzona {
namespace {

// Stands between two files.
constexpr char kSeparator = '\n';

// Bytes that were there when the folder was listed.
std::string read_again(const TextFile& file, int64_t offset, int64_t count) {
  std::string bytes;
  int64_t found = 0;
  try {
    bytes = read_file_range(file.path, offset, count, "the text");
    if (std::cmp_equal(bytes.size(), count)) return bytes;
    found = file_size(file.path, "the text");
  } catch (const UsageError& error) {
    throw DataLost(error.what());
  }
  throw DataLost(cat(quoted(file.path), ": expected ", file.size,
                     " bytes as when the run began, found ", found,
                     ": it was cut short while it was in use"));
}

class FolderSource : public TokenSource {
 public:
  FolderSource(const std::string& path, const TokenOptions& options)
      : folder_(list_text_files(path)), vocab_(options.vocab) {
    for (const TextFile& file : folder_.files) {
      starts_.push_back(size_);
      size_ += file.size + 1;
    }
    size_ = std::max(size_ - 1, int64_t{0});  // none behind the last
  }

  int64_t size() const override { return size_; }
  void read(int64_t first, std::span<int32_t> to) const override;
  std::string describe() const override;
  std::string digest() const override { return digest_of(*this); }

 private:
  // Reads from one file, its separator included; gives how many.
  size_t read_file_at(int64_t first, std::span<int32_t> to) const;

  FolderFiles folder_;
  int64_t vocab_;
  std::vector<int64_t> starts_;  // of files
  int64_t size_ = 0;
};

void FolderSource::read(int64_t first, std::span<int32_t> to) const {
  const auto count = static_cast<int64_t>(to.size());
  CANZONA_CHECK(first >= 0 && count <= size_ && first <= size_ - count,
                "tokens ", first, " + ", count, " of ", size_);
  while (!to.empty()) {
    const size_t done = read_file_at(first, to);
    to = to.subspan(done);
    first += static_cast<int64_t>(done);
  }
}

size_t FolderSource::read_file_at(int64_t first, std::span<int32_t> to) const {
  const auto after = std::ranges::upper_bound(starts_, first);
  const auto number = static_cast<size_t>(after - starts_.begin()) - 1;
  const TextFile& file = folder_.files[number];
  const int64_t offset = first - starts_[number];
  const auto wanted =
      std::min(static_cast<int64_t>(to.size()), file.size + 1 - offset);
  std::string bytes =
      read_again(file, offset, std::min(wanted, file.size - offset));
  if (wanted > file.size - offset) bytes += kSeparator;
  const PackedTokens tokens{std::as_bytes(std::span(bytes)), PackedType::kU8};
  tokens.read(0, to.first(bytes.size()), {file.path, vocab_}, offset);
  return bytes.size();
}

std::string FolderSource::describe() const {
  std::string out = cat("text, ", folder_.files.size(),
                        folder_.files.size() == 1 ? " file, " : " files, ",
                        human_count(static_cast<double>(size_)), " tokens");
  if (folder_.num_binary > 0)
    out += cat(", ", folder_.num_binary, " binary left out");
  if (folder_.num_other > 0)
    out += cat(", ", folder_.num_other, " hidden, empty or no files left out");
  return out;
}

}  // namespace

std::unique_ptr<TokenSource> open_folder(const std::string& path,
                                         const TokenOptions& options) {
  return std::make_unique<FolderSource>(path, options);
}

}  // namespace canzona
