#include "cli/all_cores.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "canzona/base/text.h"

namespace canzona::cli {
namespace {

// The pieces that nobody has taken yet.
class Pieces {
 public:
  Pieces(size_t count, const std::function<void(size_t)>& work,
         std::function<void(size_t)> tell)
      : count_(count), work_(work), tell_(std::move(tell)) {}

  // Takes pieces until there are none.
  void serve() {
    for (size_t piece = 0; take(piece);) {
      try {
        work_(piece);
        const std::lock_guard lock(mutex_);
        tell_(++done_);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        next_ = count_;
      }
    }
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  bool take(size_t& piece) {
    const std::lock_guard lock(mutex_);
    if (next_ >= count_) return false;
    piece = next_++;
    return true;
  }

  const size_t count_;
  const std::function<void(size_t)>& work_;
  std::function<void(size_t)> tell_;
  std::mutex mutex_;
  size_t next_ = 0, done_ = 0;
  std::exception_ptr error_;
};

}  // namespace

EachOf on_all_cores(const std::string& what, const Output& out) {
  return [what, &out](size_t count, const std::function<void(size_t)>& work) {
    const auto tell = [&](size_t done) {
      if (!what.empty()) out.progress(cat(what, ": ", done, " of ", count));
    };
    Pieces pieces(count, work, tell);
    {
      const size_t cores = std::max(1U, std::thread::hardware_concurrency());
      std::vector<std::jthread> others;
      for (size_t i = 1; i < std::min(cores, count); ++i)
        others.emplace_back([&] { pieces.serve(); });
      pieces.serve();
    }
    if (!what.empty()) out.progress("");
    pieces.rethrow();
  };
}

}  // namespace canzona::cli
