// A library to preload: counts the calls of the system that a program makes on
// files below a folder, in all its threads, and makes one of them the last
// thing that the process does, or lets it fail.
//
//   LD_PRELOAD=libfaulty_files.so CANZONA_FAULTY_FILES=/runs/one/ckpt
//   CANZONA_FAULTY_CALL=17 CANZONA_FAULTY_KIND=ENOSPC canzona train …
//
//   CANZONA_FAULTY_CALL  from 1; none: calls are counted and nothing fails
//   CANZONA_FAULTY_KIND  KILL (before the call), SHORT (half is written), or
//                        the name of an error
//   CANZONA_FAULTY_RANK  only in the process of that rank
//   CANZONA_FAULTY_ONCE  a file that is made when the fault happens; where it
//                        is, the fault happens no more
//   CANZONA_FAULTY_LOG   a file that gets a line for every call; of ranks that
//                        are processes, one each: LOG.0
//
// For tests, where ptrace is refused and beside strace: it sees the calls that
// a program makes through the C library, which are those of checkpoints.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <initializer_list>

namespace {

constexpr size_t kMaxPath = 4096;

const char* faulty_setting(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

struct FaultyError {
  const char* name;
  int code;
};
constexpr FaultyError kErrors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},
                                   {"EDQUOT", EDQUOT}, {"EACCES", EACCES},
                                   {"EINTR", EINTR},   {"EROFS", EROFS}};

// Returns the rank of this process; "" if it is not a rank.
const char* own_faulty_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "CANZONA_RANK"})
    if (*faulty_setting(name) != '\0') return faulty_setting(name);
  return "";
}

bool is_faulty_rank() {
  const char* wanted = faulty_setting("CANZONA_FAULTY_RANK");
  return *wanted == '\0' || strcmp(own_faulty_rank(), wanted) == 0;
}

// Settings from the environment, read at the first call.
struct FaultySettings {
  const char* folder = faulty_setting("CANZONA_FAULTY_FILES");
  size_t length = strlen(folder);
  const char* kind = faulty_setting("CANZONA_FAULTY_KIND");
  long call = atol(faulty_setting("CANZONA_FAULTY_CALL"));
  const char* once = faulty_setting("CANZONA_FAULTY_ONCE");
  const char* log = faulty_setting("CANZONA_FAULTY_LOG");
  int code = 0;
  bool active = length > 0 && is_faulty_rank();

  FaultySettings() {
    for (const FaultyError& error : kErrors)
      if (strcmp(kind, error.name) == 0) code = error.code;
  }
};
const FaultySettings& faulty_settings() {
  static const FaultySettings settings;
  return settings;
}

std::atomic<long> faulty_calls{0};

bool starts_below(const char* path) {
  const FaultySettings& all = faulty_settings();
  return strncmp(path, all.folder, all.length) == 0 &&
         (path[all.length] == '/' || path[all.length] == '\0');
}

// Uses system calls directly, so that none of these calls is counted.
void path_of_file(int file, char* path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const long size = syscall(SYS_readlinkat, AT_FDCWD, link, path, kMaxPath - 1);
  path[size < 0 ? 0 : size] = '\0';
}

bool is_below(int folder, const char* name) {
  if (!faulty_settings().active) return false;
  char path[kMaxPath];
  if (name == nullptr) {
    path_of_file(folder, path);
    return starts_below(path);
  }
  if (*name == '/') return starts_below(name);
  if (folder == AT_FDCWD) return false;  // the tests name folders absolutely
  path_of_file(folder, path);
  return starts_below(path);
}

void write_log(long number, const char* call, const char* name) {
  if (*faulty_settings().log == '\0') return;
  char log[kMaxPath];
  const char* rank = own_faulty_rank();
  snprintf(log, sizeof log, "%s%s%s", faulty_settings().log,
           *rank == '\0' ? "" : ".", rank);
  char line[kMaxPath + 64];
  const int size = snprintf(line, sizeof line, "%ld %s %s\n", number, call,
                            name == nullptr ? "" : name);
  const long file = syscall(SYS_openat, AT_FDCWD, log,
                            O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return;
  syscall(SYS_write, static_cast<int>(file), line, static_cast<size_t>(size));
  syscall(SYS_close, static_cast<int>(file));
}

// False if the fault has happened already.
bool is_first_fault() {
  const char* once = faulty_settings().once;
  if (*once == '\0') return true;
  const long file = syscall(SYS_openat, AT_FDCWD, once,
                            O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  return file >= 0;
}

[[noreturn]] void end_process() {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

enum class Turn { kUsual, kFails, kShort };

// Decides what is to happen to a call that is about to be made.
Turn next_turn(int folder, const char* name, const char* call) {
  if (!is_below(folder, name)) return Turn::kUsual;
  const long number = ++faulty_calls;
  write_log(number, call, name);
  const FaultySettings& all = faulty_settings();
  if (number != all.call || !is_first_fault()) return Turn::kUsual;
  if (all.code != 0) return Turn::kFails;
  if (strcmp(all.kind, "KILL") == 0) end_process();
  return Turn::kShort;
}

template <class Call>
auto with_turn(Turn turn, const Call& call) -> decltype(call()) {
  if (turn == Turn::kFails) {
    errno = faulty_settings().code;
    return -1;
  }
  return call();
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

mode_t mode_of(int flags, va_list rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0
             ? static_cast<mode_t>(va_arg(rest, int))
             : 0;
}

int open_counted(int folder, const char* name, int flags, mode_t mode) {
  return with_turn(next_turn(folder, name, "openat"), [&] {
    return static_cast<int>(syscall(SYS_openat, folder, name, flags, mode));
  });
}

}  // namespace

// NOLINTBEGIN: the names and types are the C library's.
extern "C" {

int open(const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_counted(AT_FDCWD, name, flags, mode);
}
int open64(const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_counted(AT_FDCWD, name, flags, mode);
}
int openat(int folder, const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_counted(folder, name, flags, mode);
}
int openat64(int folder, const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_counted(folder, name, flags, mode);
}

// A file that could not be closed is closed nevertheless, as on Linux.
int close(int file) {
  static auto* const next = real<int(int)>("close");
  const Turn turn = next_turn(file, nullptr, "close");
  const int result = next(file);
  return with_turn(turn, [&] { return result; });
}

ssize_t write(int file, const void* bytes, size_t count) {
  static auto* const next = real<ssize_t(int, const void*, size_t)>("write");
  const Turn turn = next_turn(file, nullptr, "write");
  if (turn == Turn::kShort) return next(file, bytes, (count + 1) / 2);
  return with_turn(turn, [&] { return next(file, bytes, count); });
}
ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t offset) {
  static auto* const next =
      real<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  const Turn turn = next_turn(file, nullptr, "pwrite64");
  if (turn == Turn::kShort) return next(file, bytes, (count + 1) / 2, offset);
  return with_turn(turn, [&] { return next(file, bytes, count, offset); });
}
ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  return pwrite64(file, bytes, count, offset);
}

int fsync(int file) {
  static auto* const next = real<int(int)>("fsync");
  return with_turn(next_turn(file, nullptr, "fsync"),
                   [&] { return next(file); });
}
int fdatasync(int file) {
  static auto* const next = real<int(int)>("fdatasync");
  return with_turn(next_turn(file, nullptr, "fdatasync"),
                   [&] { return next(file); });
}
int ftruncate64(int file, off64_t size) {
  static auto* const next = real<int(int, off64_t)>("ftruncate64");
  return with_turn(next_turn(file, nullptr, "ftruncate"),
                   [&] { return next(file, size); });
}
int ftruncate(int file, off_t size) { return ftruncate64(file, size); }

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  static auto* const next =
      real<int(int, const char*, int, const char*)>("renameat");
  return with_turn(next_turn(to_folder, to, "renameat"),
                   [&] { return next(from_folder, from, to_folder, to); });
}
int rename(const char* from, const char* to) {
  static auto* const next = real<int(const char*, const char*)>("rename");
  return with_turn(next_turn(AT_FDCWD, to, "rename"),
                   [&] { return next(from, to); });
}

int mkdirat(int folder, const char* name, mode_t mode) {
  static auto* const next = real<int(int, const char*, mode_t)>("mkdirat");
  return with_turn(next_turn(folder, name, "mkdirat"),
                   [&] { return next(folder, name, mode); });
}
int mkdir(const char* name, mode_t mode) {
  static auto* const next = real<int(const char*, mode_t)>("mkdir");
  return with_turn(next_turn(AT_FDCWD, name, "mkdir"),
                   [&] { return next(name, mode); });
}

int unlinkat(int folder, const char* name, int flags) {
  static auto* const next = real<int(int, const char*, int)>("unlinkat");
  return with_turn(next_turn(folder, name, "unlinkat"),
                   [&] { return next(folder, name, flags); });
}
int unlink(const char* name) {
  static auto* const next = real<int(const char*)>("unlink");
  return with_turn(next_turn(AT_FDCWD, name, "unlink"),
                   [&] { return next(name); });
}
int rmdir(const char* name) {
  static auto* const next = real<int(const char*)>("rmdir");
  return with_turn(next_turn(AT_FDCWD, name, "rmdir"),
                   [&] { return next(name); });
}

}  // extern "C"
// NOLINTEND
