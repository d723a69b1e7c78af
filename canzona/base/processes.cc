#include "canzona/base/processes.h"

#include <fstream>
#include <string>

#include "canzona/base/text.h"

namespace canzona {

// The line reads "4711 (name) T …", where the name may contain anything; the
// state is the letter after it.
bool is_stopped_process(int64_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         (text[name_end + 2] == 'T' || text[name_end + 2] == 't');
}

}  // namespace canzona
