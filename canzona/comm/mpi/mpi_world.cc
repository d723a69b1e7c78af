#include "canzona/comm/mpi/mpi_world.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;

constexpr int kNoticeTag = 0;
// Notices are small, so they wait for a connection only, not for the receiver.
constexpr auto kTimeToTell = 200ms;
// The reason of a rank that has left may arrive this much later.
constexpr auto kTimeToHear = 20ms;
constexpr auto kWatchEvery = 1ms;

// Ranks exchange these at the start.
struct Card {
  std::array<char, MPI_MAX_PROCESSOR_NAME> node{};
  uint64_t place = 0;
  int64_t process = 0;
};

Card own_card() {
  Card card;
  int length = 0;
  require_mpi(MPI_Get_processor_name(card.node.data(), &length),
              "MPI_Get_processor_name");
  card.place = place_of_process();
  card.process = getpid();
  return card;
}

MPI_Comm own_duplicate() {
  MPI_Comm duplicate = MPI_COMM_NULL;
  require_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &duplicate), "MPI_Comm_dup");
  require_mpi(MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN),
              "MPI_Comm_set_errhandler");
  return duplicate;
}

int64_t largest_tag(MPI_Comm communicator) {
  void* value = nullptr;
  int found = 0;
  MPI_Comm_get_attr(communicator, MPI_TAG_UB, &value, &found);
  constexpr int64_t kPromisedByMpi = 32767;
  return found != 0 ? *static_cast<int*>(value) : kPromisedByMpi;
}

}  // namespace

void require_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw PeerLost(cat(call, ": ", printable(text.data())));
}

MpiWorld::MpiWorld(const MpiOptions& options)
    : options_(options),
      messages_(own_duplicate()),
      notices_(own_duplicate()),
      most_groups_(largest_tag(messages_) / kNumMpiKinds) {
  MPI_Comm_rank(messages_, &rank_);
  MPI_Comm_size(messages_, &size_);
  meet_everyone();
  call_watch_ = std::make_unique<CallWatch>(CallWatch::Hooks{
      .peer_has_ended = [this] { return !watch_.ended().empty(); },
      .give_up =
          [this](std::chrono::milliseconds time) {
            end_without_peers(
                cat("rank ", rank_, ": MPI has not returned from a call for ",
                    human_seconds(static_cast<double>(time.count()) / 1e3),
                    ": ", missing_ranks()));
          }});
  require_mpi(
      MPI_Irecv(arriving_.data(), static_cast<int>(arriving_.size()), MPI_CHAR,
                MPI_ANY_SOURCE, kNoticeTag, notices_, &notice_),
      "MPI_Irecv");
}

MpiWorld::~MpiWorld() {
  if (aborted() || notice_ == MPI_REQUEST_NULL) return;
  abort(cat("rank ", rank_, " ended before the others"));
}

// Every pair exchanges a message once, so that a notice need not connect first.
void MpiWorld::meet_everyone() {
  const Card mine = own_card();
  std::vector<Card> sent(static_cast<size_t>(size_), mine);
  std::vector<Card> cards(sent.size());
  require_mpi(MPI_Alltoall(sent.data(), sizeof(Card), MPI_BYTE, cards.data(),
                           sizeof(Card), MPI_BYTE, notices_),
              "MPI_Alltoall");
  for (int other = 0; other < size_; ++other) {
    const Card& card = cards[static_cast<size_t>(other)];
    nodes_.emplace_back(card.node.data());
    processes_.push_back(card.process);
    if (other != rank_ && card.place != 0 && card.place == mine.place)
      watch_.add(other, card.process);
  }
}

bool MpiWorld::set_reason(std::string_view reason) {
  std::lock_guard lock(reason_mutex_);
  if (aborted()) return false;
  reason_ = reason;
  aborted_.store(true, std::memory_order_release);
  return true;
}

std::string MpiWorld::abort_reason() const {
  std::lock_guard lock(reason_mutex_);
  return reason_;
}

void MpiWorld::abort(std::string_view reason) {
  if (set_reason(reason)) call_mpi([&] { send_notices(reason); });
  std::unique_lock lock(gate_);
  closed_ = true;
}

// A notice that is not delivered in time is abandoned together with its memory:
// its receiver is gone or will run into its own deadline.
void MpiWorld::send_notices(std::string_view reason) {
  auto notice = std::make_unique<Notice>();
  std::copy_n(reason.begin(), std::min(reason.size(), notice->size() - 1),
              notice->begin());
  std::vector<MPI_Request> requests;
  for (int step = 1; step < size_; ++step)
    MPI_Isend(notice->data(), static_cast<int>(notice->size()), MPI_CHAR,
              (rank_ + step) % size_, kNoticeTag, notices_,
              &requests.emplace_back(MPI_REQUEST_NULL));
  const auto until = Clock::now() + kTimeToTell;
  int told = 0;
  while (true) {
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &told,
                MPI_STATUSES_IGNORE);
    if (told != 0) return;
    if (Clock::now() >= until) break;
    std::this_thread::sleep_for(50us);
  }
  static_cast<void>(notice.release());
}

bool MpiWorld::read_notice() {
  int arrived = 0;
  call_mpi([&] { MPI_Test(&notice_, &arrived, MPI_STATUS_IGNORE); });
  if (arrived == 0) return false;
  arriving_.back() = '\0';
  set_reason(arriving_.data());
  return true;
}

bool MpiWorld::hear() {
  const auto until = Clock::now() + kTimeToHear;
  while (Clock::now() < until && !aborted() && !read_notice())
    std::this_thread::sleep_for(50us);
  return aborted();
}

bool MpiWorld::listen() {
  const std::lock_guard lock(looking_);
  return hear();
}

void MpiWorld::look() {
  const std::unique_lock lock(looking_, std::try_to_lock);
  if (!lock || aborted() || read_notice()) return;
  const auto now = Clock::now();
  if (now < next_watch_) return;
  next_watch_ = now + kWatchEvery;
  const int ended = watch_.first_ended();
  if (ended < 0 || hear()) return;
  abort(cat("rank ", ended, " has ended without notice ",
            name_of_process(ended)));
}

std::string MpiWorld::name_of_process(int rank) const {
  return cat("(process ", processes_[static_cast<size_t>(rank)], " on ",
             nodes_[static_cast<size_t>(rank)], ")");
}

std::unique_lock<std::timed_mutex> MpiWorld::lock_founding(Deadline until) {
  std::unique_lock lock(founding_, until);
  if (!lock)
    throw PeerLost("another group is being created and is not ready in time");
  return lock;
}

void MpiWorld::send_letter(int to, int tag, const Letter& letter) {
  std::lock_guard lock(letters_mutex_);
  Sent& sent = letters_.emplace_back(Sent{.letter = letter});
  call_mpi([&] {
    MPI_Isend(sent.letter.data(), sizeof(Letter), MPI_BYTE, to, tag, messages_,
              &sent.request);
  });
}

// MPI requires that every message has been received and every request is
// complete. Only letters are left.
void MpiWorld::finalize() {
  int found = 1;
  while (found != 0) {
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, messages_, &found, &status);
    Letter letter;
    if (found != 0)
      MPI_Recv(letter.data(), sizeof(Letter), MPI_BYTE, status.MPI_SOURCE,
               status.MPI_TAG, messages_, MPI_STATUS_IGNORE);
  }
  for (Sent& sent : letters_)
    if (sent.request != MPI_REQUEST_NULL) MPI_Request_free(&sent.request);
  MPI_Cancel(&notice_);
  MPI_Wait(&notice_, MPI_STATUS_IGNORE);
  MPI_Finalize();
  std::unique_lock lock(gate_);
  closed_ = true;
}

// Ranks that have ended may have done so normally, so they are named only if
// none is stopped.
std::string MpiWorld::missing_ranks() const {
  std::vector<std::string> words;
  for (const int rank : watch_.stopped())
    words.push_back(cat("rank ", rank, " is stopped ", name_of_process(rank)));
  if (words.empty())
    for (const int rank : watch_.ended())
      words.push_back(
          cat("rank ", rank, " has ended already ", name_of_process(rank)));
  return words.empty() ? "a rank has stopped" : join(words, ", ");
}

}  // namespace canzona::comm
