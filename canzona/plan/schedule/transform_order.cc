#include "canzona/plan/schedule/transform_order.h"

#include <algorithm>

#include "canzona/base/index.h"

namespace canzona {
namespace {

class OrderMaker {
 public:
  explicit OrderMaker(std::span<const int32_t> segments)
      : segments_(segments) {}

  // Every rank of the home walks the same list: a stage of compute waits for
  // exchanges before it alone, and exchanges come in the same order everywhere,
  // so that the first stage which is not done yet can always be.
  std::vector<TransformStage> make() {
    for (const EntryKind kind :
         {EntryKind::kLoadStrips, EntryKind::kScaleStrips})
      for (int32_t i = 0; i < std::ssize(segments_); ++i) {
        add(kind, i, 0);
        add(Purpose::kTeamNorms, i, 0);
      }
    for (int32_t s = 0; s < num_segments(segments_); ++s) add_segment(s);
    return std::move(out_);
  }

 private:
  // Heads iterate before they go on with their own matrices, which the others
  // do while they wait for factors.
  void add_segment(int32_t s) {
    each(s, EntryKind::kSumStrips, Purpose::kTeamSums);
    each(s, EntryKind::kRoundSum, Purpose::kTeamTotals);
    each(s, EntryKind::kIterate, Purpose::kTeamFactors);
    each(s, [&](int32_t i) { add(Purpose::kTeamPasses, i, s); });
    add(EntryKind::kTransform, -1, s);
    each(s, [&](int32_t i) { add(EntryKind::kMultiplyStrips, i, s); });
  }

  template <class Add>
  void each(int32_t segment, const Add& add_one) {
    for (int32_t i = 0; i < std::ssize(segments_); ++i)
      if (segment < segments_[index(i)]) add_one(i);
  }
  void each(int32_t segment, EntryKind kind, Purpose then) {
    each(segment, [&](int32_t i) {
      add(kind, i, segment);
      add(then, i, segment);
    });
  }

  void add(EntryKind kind, int32_t shared, int32_t segment) {
    out_.push_back({kind, Purpose::kNone, shared, segment});
  }
  void add(Purpose purpose, int32_t shared, int32_t segment) {
    out_.push_back({EntryKind::kAllToAll, purpose, shared, segment});
  }

  std::span<const int32_t> segments_;
  std::vector<TransformStage> out_;
};

}  // namespace

std::vector<TransformStage> transform_order(std::span<const int32_t> segments) {
  return OrderMaker(segments).make();
}

int32_t num_segments(std::span<const int32_t> segments) {
  int32_t most = 1;
  for (const int32_t count : segments) most = std::max(most, count);
  return most;
}

std::vector<int32_t> spread_over_segments(std::span<const int64_t> work,
                                          int32_t segments) {
  double all = 0, before = 0;
  for (const int64_t each : work) all += static_cast<double>(each);
  std::vector<int32_t> out;
  for (const int64_t each : work) {
    out.push_back(all > 0
                      ? std::min(static_cast<int32_t>(before / all * segments),
                                 segments - 1)
                      : 0);
    before += static_cast<double>(each);
  }
  return out;
}

}  // namespace canzona
