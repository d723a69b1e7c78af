#include "cli/environment.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string_view>

namespace canzona::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// mpirun gives its ranks a terminal of their own, whatever it writes to.
bool is_terminal(int descriptor) {
  for (const char* rank : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (!variable(rank).empty()) return false;
  return ::isatty(descriptor) == 1;
}

}  // namespace

Environment read_environment() {
  return {
      .no_color = !variable("NO_COLOR").empty() || variable("TERM") == "dumb",
      .stdout_is_terminal = is_terminal(STDOUT_FILENO),
      .stderr_is_terminal = is_terminal(STDERR_FILENO)};
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

double seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace canzona::cli
