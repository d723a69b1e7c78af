// fault_rank <fault> <operation> <victim> <deadline in ms>
//
// One rank of an MPI program in which the victim fails as it comes to an
// operation: after some rounds of all operations, without a fault. The others
// say what they saw and exit as a program should: 4 if a peer is lost.
//
//   faults      none, those of failing.h, leave, late_kill (by a timer,
//               wherever it is), longer and shorter (it broadcasts other sizes
//               than expected), stuck (it is killed, and MPI's calls of the
//               next rank return no more)
//   operations  reduce_scatter_v, all_gather_v, all_to_all_v, all_reduce,
//               broadcast, barrier, split, courier (an all_reduce in the
//               background), half (a barrier in a group of half the ranks),
//               end (MPI_Finalize, after the last barrier of all ranks)
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "canzona/comm/courier.h"
#include "canzona/comm/mpi/mpi_session.h"
#include "canzona/comm/mpi/test_mpi_calls.h"
#include "tests/mpi/failing.h"

namespace canzona::tests {
namespace {

using std::chrono::milliseconds;

// The fault that this rank injects in MPI_Finalize.
std::string fault_at_end;
// Once this is set, MPI calls of this rank never return.
std::atomic<bool> is_stuck = false;

// Large enough that messages wait for their receiver.
constexpr size_t kCount = 100000;

class Groups {
 public:
  Groups(MpiSession& session, milliseconds deadline)
      : world_(session.make_world(), cpu_wire_ops(), {.deadline = deadline},
               "world"),
        half_(world_.split(world_.rank() % 2, 0, "half")) {}

  const std::map<std::string, std::function<void()>>& operations() const {
    return operations_;
  }
  void run(const std::string& name) { operations_.at(name)(); }
  void broadcast_wrongly(int root, size_t count) {
    data_.resize(count);
    world_.broadcast(root, bytes(), call());
  }
  void leave() { world_.leave(); }

 private:
  size_t num_ranks() const { return static_cast<size_t>(world_.size()); }
  Call call() const { return {.label = "layers.3"}; }
  std::span<std::byte> bytes() {
    return std::as_writable_bytes(std::span(data_));
  }

  void reduce_scatter() {
    const std::vector<int64_t> counts(num_ranks(), kCount);
    data_.resize(num_ranks() * kCount);
    std::vector<float> sum(kCount);
    world_.reduce_scatter_v(Reduction::kFp32Sum, bytes(), counts,
                            std::as_writable_bytes(std::span(sum)), call());
  }
  void all_gather() {
    const std::vector<int64_t> counts(num_ranks(), kCount * 4);
    data_.resize(num_ranks() * kCount);
    const std::vector<float> own(kCount);
    world_.all_gather_v(std::as_bytes(std::span(own)), counts, bytes(), call());
  }
  void all_to_all() {
    const std::vector<int64_t> counts(num_ranks(), kCount);
    std::vector<int64_t> places;
    for (size_t i = 0; i < num_ranks(); ++i)
      places.push_back(static_cast<int64_t>(i * kCount));
    const std::vector<std::byte> out(num_ranks() * kCount);
    std::vector<std::byte> in(out.size());
    world_.all_to_all_v({out, counts, places}, {in, counts, places}, call());
  }
  void all_reduce() {
    data_.resize(kCount);
    world_.all_reduce(Reduction::kFp32Sum, bytes(), call());
  }
  // Every rank is the root once, and so is the victim.
  void broadcast() {
    data_.resize(kCount);
    for (int root = 0; root < world_.size(); ++root)
      world_.broadcast(root, bytes(), call());
  }
  void in_background() {
    data_.resize(kCount);
    Courier courier(world_, 2);
    Work work = courier.all_reduce(Reduction::kFp32Sum, bytes(), call());
    work.wait();
  }

  Communicator world_;
  std::unique_ptr<Communicator> half_;
  std::vector<float> data_;
  const std::map<std::string, std::function<void()>> operations_ = {
      {"reduce_scatter_v", [this] { reduce_scatter(); }},
      {"all_gather_v", [this] { all_gather(); }},
      {"all_to_all_v", [this] { all_to_all(); }},
      {"all_reduce", [this] { all_reduce(); }},
      {"broadcast", [this] { broadcast(); }},
      {"barrier", [this] { world_.barrier(call()); }},
      {"split", [this] { world_.split(0, 0, "again", call())->barrier(); }},
      {"courier", [this] { in_background(); }},
      {"half", [this] { half_->barrier(call()); }},
  };
};

void fail_or_leave(const std::string& fault, Groups& groups) {
  if (fault != "leave") return fail(fault);
  groups.leave();
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

void kill_soon() {
  const auto random = std::chrono::steady_clock::now().time_since_epoch();
  std::thread([delay = random % milliseconds(20)] {
    std::this_thread::sleep_for(delay);
    raise(SIGKILL);
  }).detach();
}

milliseconds deadline_in(const std::vector<std::string>& words) {
  return milliseconds(std::stoi(words.at(3)));
}

void run(MpiSession& session, const std::vector<std::string>& words) {
  const std::string& fault = words.at(0);
  const bool victim = std::to_string(session.rank()) == words.at(2);
  Groups groups(session, deadline_in(words));
  const int num_rounds = fault == "late_kill" ? 1000000 : 3;
  if (victim && fault == "late_kill") kill_soon();
  for (int round = 0; round < num_rounds; ++round)
    for (const auto& [name, operation] : groups.operations()) {
      note_beginning();
      operation();
    }
  if (words.at(1) == "end") {
    if (victim) fault_at_end = fault;
    return;
  }
  if (fault == "stuck") {
    if (victim) fail("kill");
    is_stuck = (std::stoi(words.at(2)) + 1) % session.size() == session.rank();
  }
  if (victim) fail_or_leave(fault, groups);
  note_beginning();
  if (fault == "longer" || fault == "shorter")
    groups.broadcast_wrongly(std::stoi(words.at(2)),
                             kCount + (victim != (fault == "longer") ? 0 : 1));
  groups.run(words.at(1));
}

}  // namespace

// Whoever has no part in an operation comes to the end before the others have
// missed the victim: it waits for longer than their deadline, unless the fault
// is in the end itself.
int run_fault_rank(const std::vector<std::string>& words) {
  mpi_call_hooks().finalize = [] { fail(fault_at_end); };
  mpi_call_hooks().testsome = [] {
    while (is_stuck) pause();
  };
  return run_rank(
      {}, [&](MpiSession& session) { run(session, words); },
      words.at(1) == "end" ? deadline_in(words) : std::chrono::minutes(1));
}

}  // namespace canzona::tests

int main(int argc, char** argv) {
  return canzona::tests::run_fault_rank({argv + 1, argv + std::max(argc, 1)});
}
