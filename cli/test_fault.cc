#include "cli/test_fault.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "canzona/base/environment.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/memory.h"

namespace canzona::cli {
namespace {

constexpr const char* kFaultVariable = "CANZONA_TEST_FAULT";

const std::vector<std::string>& fault_places() {
  static const std::vector<std::string> all = {
      "forward", "backward", "optimizer", "save", "collective"};
  return all;
}
const std::vector<std::string>& fault_kinds() {
  static const std::vector<std::string> all = {
      "kill", "segv", "abort", "exit0", "throw", "stop", "cuda"};
  return all;
}

void require_word(const std::string& word, const char* key,
                  const std::vector<std::string>& known) {
  if (std::ranges::find(known, word) == known.end())
    throw UsageError(cat(kFaultVariable, ": ", key, "=", printable(word),
                         ": expected ", join(known, ", ")));
}

std::string_view train_point_name(TrainPoint point) {
  switch (point) {
    case TrainPoint::kForward:
      return "forward";
    case TrainPoint::kBackward:
      return "backward";
    case TrainPoint::kOptimizer:
      return "optimizer";
    case TrainPoint::kSave:
      return "save";
  }
  return "";
}

// Returns false if another process was first.
bool is_first(const std::string& once) {
  if (once.empty()) return true;
  const int file = ::open(once.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (file >= 0) ::close(file);
  return file >= 0;
}

void fail_by(const std::string& kind, std::string_view where) {
  if (kind == "kill") ::raise(SIGKILL);
  if (kind == "segv") {
    std::signal(SIGSEGV, SIG_DFL);
    ::raise(SIGSEGV);
  }
  if (kind == "abort") std::abort();
  if (kind == "exit0") ::_exit(0);
  if (kind == "throw")
    throw std::runtime_error(cat("a fault that a test asked for, at ", where));
  if (kind == "stop") ::raise(SIGSTOP);
  if (kind == "cuda") {
    auto* nobodys = reinterpret_cast<float*>(256);
    memory_ops("cuda").add_fp32(nobodys, nobodys, nobodys, 1024);
  }
}

}  // namespace

TestFaults::Fault TestFaults::parse(const std::string& text) {
  Fault fault;
  for (const std::string& word : split_text(text, ',')) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string key = word.substr(0, equals);
    const std::string value = word.substr(std::min(equals + 1, word.size()));
    if (key == "rank")
      fault.rank =
          static_cast<int>(parse_integer(value, 0, 1 << 20, "rank of a fault"));
    else if (key == "step")
      fault.step = parse_integer(value, 1, std::numeric_limits<int64_t>::max(),
                                 "step of a fault");
    else if (key == "number")
      fault.number = parse_integer(
          value, 1, std::numeric_limits<int64_t>::max(), "number of a fault");
    else if (key == "group")
      fault.group = value;
    else if (key == "at")
      fault.at = value;
    else if (key == "kind")
      fault.kind = value;
    else if (key == "once")
      fault.once = value;
    else
      throw UsageError(
          cat(kFaultVariable, ": ", quoted(word),
              ": expected rank=, step=, number=, group=, at=, kind= or "
              "once="));
  }
  require_word(fault.at, "at", fault_places());
  require_word(fault.kind, "kind", fault_kinds());
  return fault;
}

TestFaults::TestFaults(std::string_view text) {
  for (const std::string& fault : split_text(text, ';'))
    faults_.push_back(parse(fault));
}

void TestFaults::at(const TrainMoment& moment) {
  step_ = moment.step;
  fail(train_point_name(moment.point), moment.step, moment.rank);
}

void TestFaults::pass(std::string_view group, Operation, std::string_view,
                      int world_rank) {
  const bool counts = !faults_.empty() && faults_[0].rank == world_rank &&
                      group.starts_with(faults_[0].group);
  fail("collective", step_, world_rank, counts ? ++num_passed_ : 0);
}

void TestFaults::fail(std::string_view at, int64_t step, int rank,
                      int64_t number) {
  for (const Fault& fault : faults_)
    if (fault.at == at && fault.rank == rank &&
        (fault.number > 0 ? fault.number == number : fault.step == step) &&
        is_first(fault.once))
      fail_by(fault.kind, at);
}

std::unique_ptr<TestFaults> read_test_faults() {
  const char* text = environment_variable(kFaultVariable);
  if (text == nullptr || *text == '\0') return nullptr;
  return std::make_unique<TestFaults>(text);
}

}  // namespace canzona::cli
