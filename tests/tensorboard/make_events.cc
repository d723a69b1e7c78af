// make_events <folder>
//
// Writes the events that the test reads with the tensorboard package: a run of
// 300 steps that was killed in step 250 and resumed from step 200.

#include <exception>
#include <iostream>

#include "canzona/base/rooms.h"
#include "canzona/trace/tensorboard.h"

namespace {

void write_steps(const std::string& folder, int64_t first, int64_t last,
                 double loss) {
  using namespace canzona;
  using namespace canzona::tests;
  TensorBoardWriter board(next_events_path(folder, 1'700'000'000, "test"),
                          1'700'000'000, first);
  StepMetrics m;
  for (m.step = first; m.step <= last; ++m.step) {
    m.loss = loss / static_cast<double>(m.step);
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
    write_steps(argv[1], 1, 250, 5.0);
    write_steps(argv[1], 201, 300, 4.0);
  } catch (const std::exception& error) {
    std::cerr << "make_events: " << error.what() << "\n";
    return 1;
  }
}
