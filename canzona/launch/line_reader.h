// Lines out of a pipe, without waiting for any.
//
//   LineReader reader(child.output());
//   while (poll(…)) reader.read([](std::string_view line) { … });
//
// A line that grows too long is handed out in pieces. One thread at a time.
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

  // -1 once all writers have gone.
  int descriptor() const { return file_.number(); }
  // Hands out the lines that have come; at the end what is left, too.
  void read(const Take& take);
  // Hands out what is left and closes the file.
  void finish(const Take& take);

 private:
  void hand_out(const Take& take);

  Descriptor file_;
  std::string rest_;
};

}  // namespace canzona
