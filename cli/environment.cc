#include "cli/environment.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

namespace canzona::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

Environment read_environment() {
  return {
      .no_color = !variable("NO_COLOR").empty() || variable("TERM") == "dumb",
      .stdout_is_terminal = ::isatty(STDOUT_FILENO) == 1,
      .stderr_is_terminal = ::isatty(STDERR_FILENO) == 1};
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

}  // namespace canzona::cli
