#include "canzona/comm/tcp/tcp_world.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "canzona/base/check.h"
#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/tcp/meeting_point.h"

namespace canzona::comm {
namespace {

using WorldClock = std::chrono::steady_clock;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr uint64_t kCardMagic = 0x31647261635a4e43;     // "CNZcard1"
constexpr uint64_t kAnswerMagic = 0x31726e73775a4e43;   // "CNZwsnr1"
constexpr uint64_t kOpeningMagic = 0x316e65706f5a4e43;  // "CNZopen1"
constexpr uint64_t kNoteMagic = 0x3165746f6e5a4e43;     // "CNZnote1"

constexpr auto kTimeToTell = 200ms;
// The reason of a rank that is gone may arrive this much later.
constexpr auto kTimeToHear = 100ms;
// A connection that does not state its purpose in this time is closed; sooner
// if others wait for its place.
constexpr auto kTimeToOpen = 10s;
constexpr auto kTimeToOpenIfFull = 500ms;
constexpr size_t kFewestGuests = 16;
constexpr size_t kMostGuests = 4096;
constexpr auto kMostWorldSleep = 1000ms;

// Guests may be anybody: most of the process's files stay free for the job's
// own connections and checkpoints.
size_t most_guests() {
  constexpr size_t kShare = 8;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return kFewestGuests;
  return std::clamp<size_t>(files.rlim_cur / kShare, kFewestGuests,
                            kMostGuests);
}

using Name = std::array<char, 72>;

Name name_of(std::string_view text) {
  Name name{};
  std::copy_n(text.begin(), std::min(text.size(), name.size() - 1),
              name.begin());
  return name;
}

std::string text_of(std::span<const char> name) {
  const auto end = std::find(name.begin(), name.end(), '\0');
  return printable(std::string(name.begin(), end));
}

// Returns a random number that distinguishes this job from an earlier one at
// the same address.
uint64_t new_job() {
  std::random_device source;
  return (uint64_t{source()} << 32) | source();
}

struct Answer {
  uint64_t magic = kAnswerMagic;
  uint64_t job = 0;
  int32_t accepted = 0;
  std::array<char, 500> text{};
};

template <class Message>
std::span<const std::byte> bytes_of_message(const Message& message) {
  static_assert(std::is_trivially_copyable_v<Message>);
  return std::as_bytes(std::span(&message, 1));
}

std::string ranks_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += cat(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

}  // namespace

// A rank sends its card when it joins, and all ranks get everybody's.
struct TcpWorld::Card {
  uint64_t magic = kCardMagic;
  int32_t rank = 0;
  int32_t num_ranks = 0;
  int32_t port = 0;
  int64_t process = 0;
  Name token{};
  Name node{};
  Name host{};
};

struct TcpWorld::Note {
  enum class Kind : int32_t { kAbort, kGoodbye };
  uint64_t magic = kNoteMagic;
  Kind kind = Kind::kAbort;
  int32_t rank = 0;
  std::array<char, 496> text{};
};

struct TcpWorld::Line {
  int rank = 0;
  Socket socket;
  Note arriving;
  size_t got = 0;
  bool said_goodbye = false;
};

struct TcpWorld::Guest {
  Socket socket;
  Deadline since = WorldClock::now();
  Card card;  // an opening is shorter and has another magic number
  size_t got = 0;

  std::span<std::byte> buffer() {
    return std::as_writable_bytes(std::span(&card, 1));
  }
  bool is_opening() const {
    return got >= sizeof(card.magic) && card.magic == kOpeningMagic;
  }
  bool is_garbage() const {
    return got >= sizeof(card.magic) && card.magic != kOpeningMagic &&
           card.magic != kCardMagic;
  }
  size_t wanted() const {
    static_assert(sizeof(Opening) < sizeof(Card));
    return is_opening() ? sizeof(Opening) : sizeof(Card);
  }
  // Returns false if the other side is gone.
  bool read() {
    while (got < wanted()) {
      const size_t next =
          got < sizeof(card.magic) ? sizeof(card.magic) : wanted();
      const Passed passed =
          receive_some(socket, buffer().subspan(got, next - got));
      got += passed.bytes;
      if (passed.ended || is_garbage()) return false;
      if (got < next) return true;
    }
    return true;
  }
  bool is_complete() const { return got == wanted(); }
  Opening opening() {
    Opening opening;
    std::ranges::copy(buffer().first(sizeof(opening)),
                      std::as_writable_bytes(std::span(&opening, 1)).begin());
    return opening;
  }
};

TcpWorld::TcpWorld(TcpOptions options)
    : options_(std::move(options)), most_guests_(most_guests()) {
  if (rank() < 0 || rank() >= size())
    throw UsageError(cat("rank ", rank(), " of ", size(),
                         " ranks; expected 0 to ", size() - 1));
  if (options_.num_local != size())
    options_.meeting = network_endpoint(options_.meeting);
  rank() == 0 ? gather() : come();
  thread_ = std::thread([this] { run(); });
}

TcpWorld::~TcpWorld() {
  if (!finished_ && !aborted())
    abort(cat("rank ", rank(), " ended before the others"));
  finished_ = true;
  wake_up_.signal();
  thread_.join();
}

void TcpWorld::set_cards(const std::vector<Card>& cards) {
  for (const Card& card : cards) {
    endpoints_.push_back({text_of(card.host), card.port});
    nodes_.push_back(text_of(card.node));
    processes_.push_back(card.process);
  }
}

namespace {

// Sends the reason, best effort.
void turn_away(const Socket& socket, const std::string& why) {
  Answer answer;
  std::copy_n(why.begin(), std::min(why.size(), answer.text.size() - 1),
              answer.text.begin());
  send_all(socket, bytes_of_message(answer), WorldClock::now() + kTimeToTell);
  end_sending(socket);
}

}  // namespace

// A caller that sends anything but a card gets no answer.
void TcpWorld::gather() {
  listener_ = options_.listener != nullptr ? std::move(*options_.listener)
                                           : listen_on(options_.meeting);
  job_ = new_job();
  const Deadline until = deadline_after(options_.time);
  std::vector<Card> cards(static_cast<size_t>(size()));
  std::vector<Socket> sockets(cards.size());
  const Name token = name_of(sha256_hex(options_.token));
  cards[0].port = own_endpoint(listener_).port;
  cards[0].process = ::getpid();
  cards[0].node = name_of(node_name());
  std::string refused;

  // A rank may leave again before the last one comes, and may return.
  const auto forget_lost = [&] {
    for (Socket& socket : sockets) {
      std::byte byte{};
      if (socket.is_open() && receive_some(socket, {&byte, 1}).ended)
        socket.close();
    }
  };
  // Returns "" if the card is accepted.
  const auto objection = [&](const Card& card) -> std::string {
    if (card.token != token)
      return "this is another job's meeting point (its token differs)";
    if (card.num_ranks != size())
      return cat("rank ", card.rank, " expects ", card.num_ranks,
                 " ranks, rank 0 expects ", size());
    if (card.rank <= 0 || card.rank >= size())
      return cat("rank ", card.rank, "; expected 1 to ", size() - 1);
    forget_lost();
    if (sockets[static_cast<size_t>(card.rank)].is_open())
      return cat("rank ", card.rank, " is already connected (process ",
                 cards[static_cast<size_t>(card.rank)].process, " on ",
                 text_of(cards[static_cast<size_t>(card.rank)].node), ")");
    return "";
  };
  const auto missing = [&] {
    forget_lost();
    std::vector<int> ranks;
    for (int r = 1; r < size(); ++r)
      if (!sockets[static_cast<size_t>(r)].is_open()) ranks.push_back(r);
    return ranks;
  };
  for (std::vector<int> absent = missing(); !absent.empty();
       absent = missing()) {
    if (WorldClock::now() >= until)
      throw PeerLost(cat(
          ranks_list(absent), " did not connect to ",
          to_string(own_endpoint(listener_)), " within ",
          human_seconds(std::chrono::duration<double>(options_.time).count()),
          refused.empty() ? "" : cat("; turned away: ", refused),
          options_.num_local == size()
              ? ""
              : loopback_hint(own_endpoint(listener_).host)));
    std::vector<pollfd> files;
    wait_for_guests(files, until);
    accept_guests();
    std::erase_if(guests_, [&](Guest& guest) {
      if (!guest.read()) return true;
      if (!guest.is_complete()) return is_late(guest);
      if (guest.is_opening()) return true;
      Card& card = guest.card;
      const Endpoint from = peer_endpoint(guest.socket);
      if (const std::string why = objection(card); !why.empty()) {
        refused = cat(to_string(from), " (", why, ")");
        turn_away(guest.socket, why);
        return true;
      }
      card.host = name_of(from.host);
      cards[static_cast<size_t>(card.rank)] = card;
      sockets[static_cast<size_t>(card.rank)] = std::move(guest.socket);
      return true;
    });
  }
  Answer welcome;
  welcome.job = job_;
  welcome.accepted = 1;
  for (int r = 1; r < size(); ++r) {
    Socket& socket = sockets[static_cast<size_t>(r)];
    // The meeting point as this rank sees it.
    cards[0].host = name_of(own_endpoint(socket).host);
    if (!send_all(socket, bytes_of_message(welcome), until) ||
        !send_all(socket, std::as_bytes(std::span(cards)), until))
      throw PeerLost(
          cat("rank ", r, " disconnected before all ranks had connected"));
    Line& line = lines_.emplace_back();
    line.rank = r;
    line.socket = std::move(socket);
  }
  set_cards(cards);
}

void TcpWorld::come() {
  const Deadline until = deadline_after(options_.time);
  Line& line = lines_.emplace_back();
  try {
    line.socket = connect_to(options_.meeting, until);
  } catch (const PeerLost& error) {
    throw PeerLost(cat("rank 0 cannot be reached: ", error.what(),
                       "; if it listens at another address of its machine, its "
                       "own error names that address"));
  }
  listener_ = listen_on({own_endpoint(line.socket).host, 0});
  Card card;
  card.rank = rank();
  card.num_ranks = size();
  card.port = own_endpoint(listener_).port;
  card.process = ::getpid();
  card.token = name_of(sha256_hex(options_.token));
  card.node = name_of(node_name());
  Answer answer;
  std::vector<Card> cards(static_cast<size_t>(size()));
  const bool answered =
      send_all(line.socket, bytes_of_message(card), until) &&
      receive_all(line.socket, std::as_writable_bytes(std::span(&answer, 1)),
                  until);
  if (answered && answer.magic != kAnswerMagic)
    throw UsageError(cat("what listens at ", to_string(options_.meeting),
                         " is not rank 0 of a canzona job"));
  if (answered && answer.accepted == 0)
    throw UsageError(cat("rank ", rank(), " was turned away at ",
                         to_string(options_.meeting), ": ",
                         text_of(answer.text)));
  if (!answered ||
      !receive_all(line.socket, std::as_writable_bytes(std::span(cards)),
                   until))
    throw PeerLost(cat("rank 0 at ", to_string(options_.meeting),
                       " did not connect all ranks"));
  job_ = answer.job;
  set_cards(cards);
  endpoints_[0].host = peer_endpoint(line.socket).host;
}

void TcpWorld::run() {
  std::vector<pollfd> files;  // kept: a training loop asks for no memory
  while (!finished_) {
    files = {{wake_up_.file(), POLLIN, 0}};
    for (const Line& line : lines_)
      if (line.socket.is_open())
        files.push_back({line.socket.file(), POLLIN, 0});
    wait_for_guests(files, WorldClock::now() + kMostWorldSleep);
    wake_up_.clear();
    for (Line& line : lines_)
      if (line.socket.is_open()) read_line(line);
    accept_guests();
    read_guests();
  }
}

bool TcpWorld::is_late(const Guest& guest) const {
  return WorldClock::now() >=
         guest.since + (is_full() ? kTimeToOpenIfFull : kTimeToOpen);
}

// Sleeps until a guest comes or says something, or one of `files` is readable.
// With all places taken, new guests wait in the listener's queue. Adds to
// `files`.
void TcpWorld::wait_for_guests(std::vector<pollfd>& files, Deadline until) {
  if (!is_full()) files.push_back({listener_.file(), POLLIN, 0});
  for (const Guest& guest : guests_)
    files.push_back({guest.socket.file(), POLLIN, 0});
  const auto most = is_full() ? kTimeToOpenIfFull : kMostWorldSleep;
  ::poll(files.data(), files.size(),
         poll_time(until, static_cast<int>(most.count())));
}

void TcpWorld::accept_guests() {
  while (!is_full()) {
    Socket socket = accept_from(listener_);
    if (!socket.is_open()) return;
    Guest& guest = guests_.emplace_back();
    guest.socket = std::move(socket);
  }
}

void TcpWorld::read_guests() {
  std::erase_if(guests_, [&](Guest& guest) { return read_guest(guest); });
}

// Returns true if the guest can be dropped.
bool TcpWorld::read_guest(Guest& guest) {
  if (!guest.read()) return true;
  if (!guest.is_complete()) return is_late(guest);
  if (!guest.is_opening()) {
    turn_away(guest.socket, "all ranks of the job are already connected");
    return true;
  }
  const Opening opening = guest.opening();
  if (opening.job != job_ || opening.from < 0 || opening.from >= size())
    return true;
  const std::lock_guard lock(groups_mutex_);
  if (closed_.contains(opening.key)) return true;
  Arrival& arrival = arrived_[{opening.key, opening.from}];
  arrival.left = opening.leaves != 0;
  if (!arrival.left) arrival.socket = std::move(guest.socket);
  if (const auto group = groups_.find(opening.key); group != groups_.end())
    group->second->signal();
  return true;
}

void TcpWorld::read_line(Line& line) {
  while (true) {
    const auto rest =
        std::as_writable_bytes(std::span(&line.arriving, 1)).subspan(line.got);
    const Passed passed = receive_some(line.socket, rest);
    line.got += passed.bytes;
    if (line.got == sizeof(Note)) {
      line.got = 0;
      take_note(line, line.arriving);
      continue;
    }
    if (!passed.ended) return;
    lose(line);
    const std::lock_guard lock(lines_mutex_);
    line.socket.close();
    return;
  }
}

void TcpWorld::take_note(Line& line, const Note& note) {
  if (note.magic != kNoteMagic) return;
  if (note.kind == Note::Kind::kGoodbye) {
    line.said_goodbye = true;
    return;
  }
  set_reason(text_of(note.text));
  if (rank() == 0) tell(note, line.rank);
}

void TcpWorld::lose(const Line& line) {
  if (line.said_goodbye || finished_ || aborted()) return;
  const auto r = static_cast<size_t>(line.rank);
  abort(cat("rank ", line.rank, " has ended without notice (process ",
            processes_[r], " on ", nodes_[r], ")"));
}

bool TcpWorld::set_reason(std::string_view reason) {
  {
    const std::lock_guard lock(reason_mutex_);
    if (aborted()) return false;
    reason_ = reason;
    aborted_.store(true, std::memory_order_release);
  }
  const std::lock_guard lock(groups_mutex_);
  for (const auto& [key, wake_up] : groups_) wake_up->signal();
  return true;
}

std::string TcpWorld::abort_reason() const {
  const std::lock_guard lock(reason_mutex_);
  return reason_;
}

// A note that is not delivered in time is dropped: its receiver is gone or will
// run into its own deadline.
void TcpWorld::tell(const Note& note, int but_for) {
  const std::lock_guard lock(lines_mutex_);
  for (Line& line : lines_)
    if (line.socket.is_open() && line.rank != but_for)
      send_all(line.socket, bytes_of_message(note),
               WorldClock::now() + kTimeToTell);
}

void TcpWorld::abort(std::string_view reason) {
  if (!set_reason(reason)) return;
  Note note;
  note.rank = rank();
  std::copy_n(reason.begin(), std::min(reason.size(), note.text.size() - 1),
              note.text.begin());
  tell(note, rank());
}

bool TcpWorld::listen() {
  const auto until = WorldClock::now() + kTimeToHear;
  while (!aborted() && WorldClock::now() < until)
    std::this_thread::sleep_for(1ms);
  return aborted();
}

void TcpWorld::finish() {
  Note note;
  note.kind = Note::Kind::kGoodbye;
  note.rank = rank();
  tell(note, rank());
  finished_ = true;
  wake_up_.signal();
}

void TcpWorld::add_group(uint64_t key, WakeUp& wake_up) {
  const std::lock_guard lock(groups_mutex_);
  CANZONA_CHECK(groups_.emplace(key, &wake_up).second,
                "two groups have the key ", key);
}

std::optional<TcpWorld::Arrival> TcpWorld::take(uint64_t key, int from) {
  const std::lock_guard lock(groups_mutex_);
  const auto found = arrived_.find({key, from});
  if (found == arrived_.end()) return {};
  Arrival arrival = std::move(found->second);
  arrived_.erase(found);
  return arrival;
}

void TcpWorld::remove_group(uint64_t key) {
  const std::lock_guard lock(groups_mutex_);
  groups_.erase(key);
  closed_.insert(key);
  std::erase_if(arrived_,
                [&](const auto& entry) { return entry.first.first == key; });
}

Socket TcpWorld::begin_connection_to(int world_rank) const {
  return begin_connection(endpoints_[static_cast<size_t>(world_rank)]);
}

TcpWorld::Opening TcpWorld::opening(uint64_t key, bool leaves) const {
  return {kOpeningMagic, job_, key, rank(), leaves ? 1 : 0};
}

}  // namespace canzona::comm
