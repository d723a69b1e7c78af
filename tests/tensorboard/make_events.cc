// make_events <folder>
//
// Writes the events that the test reads with the tensorboard package.

#include <exception>
#include <iostream>

#include "canzona/trace/tensorboard.h"

namespace {

void write_events(const std::string& folder) {
  using namespace canzona;
  TensorBoardWriter board(events_path(folder, 1'700'000'000, "test"),
                          1'700'000'000);
  StepMetrics m;
  for (m.step = 1; m.step <= 300; ++m.step) {
    m.loss = 4.0 / static_cast<double>(m.step);
    m.memory_bytes = 1 << 20;
    if (m.step % 100 == 0) m.eval_loss = m.loss * 2;
    board.add(m.step, 1.7e9 + static_cast<double>(m.step) / 2, scalars_of(m));
    m.eval_loss.reset();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_events <folder>\n";
    return 2;
  }
  try {
    write_events(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "make_events: " << error.what() << "\n";
    return 1;
  }
}
