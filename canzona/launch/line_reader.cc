#include "canzona/launch/line_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace canzona {
namespace {

constexpr size_t kLongestLine = size_t{64} << 10;

// Programs write "\r" before text that overwrites a line of a terminal.
std::string_view without_returns(std::string_view line) {
  while (line.starts_with('\r')) line.remove_prefix(1);
  while (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

LineReader::LineReader(Descriptor file) : file_(std::move(file)) {
  const int flags = ::fcntl(file_.number(), F_GETFL);
  ::fcntl(file_.number(), F_SETFL, flags | O_NONBLOCK);
}

void LineReader::hand_out(const Take& take) {
  size_t begin = 0;
  while (true) {
    const size_t end = rest_.find('\n', begin);
    if (end == std::string::npos) break;
    take(without_returns(std::string_view(rest_).substr(begin, end - begin)));
    begin = end + 1;
  }
  rest_.erase(0, begin);
  if (rest_.size() < kLongestLine) return;
  take(without_returns(rest_));
  rest_.clear();
}

void LineReader::read(const Take& take) {
  std::array<char, 4096> bytes;
  while (file_.is_open()) {
    const ssize_t count = ::read(file_.number(), bytes.data(), bytes.size());
    if (count > 0) {
      rest_.append(bytes.data(), static_cast<size_t>(count));
      hand_out(take);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    finish(take);
  }
}

void LineReader::finish(const Take& take) {
  if (!rest_.empty()) take(without_returns(rest_));
  rest_.clear();
  file_.close();
}

}  // namespace canzona
