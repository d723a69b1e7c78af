// Reads lines from a pipe without blocking.
//
//   LineReader reader(child.output());
//   while (poll(…)) reader.read([](std::string_view line) { … });
//
// A line that is too long is delivered in pieces. One thread at a time.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "canzona/launch/child.h"

namespace canzona {

class LineReader {
 public:
  using Take = std::function<void(std::string_view line)>;

  LineReader() = default;
  explicit LineReader(Descriptor file);

  // -1 once all writers are gone.
  int descriptor() const { return file_.number(); }
  // Delivers the lines that have arrived and, at the end of the file, the rest.
  void read(const Take& take);
  // Delivers the rest and closes the file.
  void finish(const Take& take);

 private:
  void hand_out(const Take& take);

  Descriptor file_;
  std::string rest_;
};

}  // namespace canzona
