// Reads what TensorBoardWriter wrote, for tests: it shares nothing with the
// writer, not even the way a checksum is taken.
//
//   std::vector<BoardEvent> events = read_events(bytes, "events.out…");
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace canzona {

struct BoardEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  std::map<std::string, float> scalars;  // by tag
};

// UsageError names the file, the byte and what is wrong there: a checksum, a
// record that ends too soon, a field that cannot be.
std::vector<BoardEvent> read_events(std::string_view bytes,
                                    const std::string& file);

}  // namespace canzona
