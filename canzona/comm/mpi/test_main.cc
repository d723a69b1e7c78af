// Runs the tests of a program on all its ranks, in the same order. Rank 0
// prints; the others print only failures. A number among the arguments is the
// size of a message chunk in bytes.
#include <gtest/gtest.h>

#include <exception>
#include <iostream>
#include <memory>
#include <span>

#include "canzona/base/text.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/mpi/test_session.h"

namespace canzona::comm {
namespace {

std::unique_ptr<MpiSession> session;

class FailuresOnly : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::cerr << "rank " << session->rank() << ": "
                << (result.file_name() ? result.file_name() : "?") << ":"
                << result.line_number() << ": " << result.message() << "\n";
  }
};

// A failure on any rank counts on all.
int run_tests(const MpiOptions& options) {
  session = std::make_unique<MpiSession>(options);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (session->rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  int64_t failed = RUN_ALL_TESTS();
  {
    Communicator world(session->make_world(), cpu_wire_ops(), {}, "world");
    world.all_reduce(Reduction::kInt64Max,
                     std::as_writable_bytes(std::span(&failed, 1)));
  }
  session->finish();
  return failed == 0 ? 0 : 1;
}

}  // namespace

MpiSession& test_session() { return *session; }

}  // namespace canzona::comm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    canzona::MpiOptions options;
    if (argc > 1)
      options.part_bytes = canzona::parse_integer(argv[1], 1, 1 << 30, "part");
    return canzona::comm::run_tests(options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    canzona::exit_at_once(1);
  }
}
