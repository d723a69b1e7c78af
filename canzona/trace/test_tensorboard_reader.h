// For tests: reads what TensorBoardWriter wrote. It shares no code with the
// writer, not even the checksum.
//
//   std::vector<BoardEvent> events = read_events(bytes, "events.out…");
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace canzona::trace {

struct BoardEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  bool is_start = false;  // it supersedes its step and later ones
  std::map<std::string, float> scalars;  // by tag
};

// Throws UsageError naming the file, the byte and the fault there: a checksum,
// a record that ends too soon, an invalid field.
std::vector<BoardEvent> read_events(std::string_view bytes,
                                    const std::string& file);

}  // namespace canzona::trace
