// Passes over memory that no matrix's cost holds.
#include "canzona/plan/predict/predict_parts.h"
#include "canzona/plan/schedule/runs.h"

namespace canzona {
namespace {

// Bytes read and written for an element, all in fp32.
constexpr int64_t kGradient = 2 * kBytesPerFp32;  // scaled, and looked at
constexpr int64_t kAdamw = 7 * kBytesPerFp32;  // gradient; moments and weight
constexpr int64_t kRounded = 2;                // the copy in bf16
constexpr int64_t kCopy = 2 * kBytesPerFp32;

class ElementWise {
 public:
  ElementWise(const PlanPart& part, const RuleFacts& rule)
      : part_(part),
        fields_(rule.gather_fields()),
        rounded_(part.options.parameters == ParameterDtype::kBf16 ? kRounded
                                                                  : 0) {}

  // Returns the bytes that passes over a rank's matrices read and write. With
  // an exchange, fields are written into a slot and updates read from one; an
  // owner puts matrices together from slots and takes their updates apart.
  double matrix_bytes(const RankCost& rank) const {
    const bool exchanged = part_.grid.tp > 1;
    const int64_t slots = exchanged ? (fields_ + 1) * kBytesPerFp32 : 0;
    const int64_t copies = exchanged ? (fields_ + 1) * kCopy : 0;
    return product(rank.elements, kGradient + rounded_ + slots) +
           product(rank.computed, copies);
  }

  double adamw_bytes(int64_t elements) const {
    return product(elements, kGradient + kAdamw + rounded_);
  }

 private:
  static double product(int64_t elements, int64_t bytes) {
    return static_cast<double>(elements) * static_cast<double>(bytes);
  }

  const PlanPart& part_;
  int64_t fields_;
  int64_t rounded_;
};

void add_adamw(const PlanPart& part, const ElementWise& passes,
               std::vector<RankCost>& ranks) {
  for (const Bucket& bucket : part.buckets) {
    const Buffer& buffer = part.buffers[static_cast<size_t>(bucket.buffer)];
    for (int32_t place = 0; place < part.grid.places; ++place) {
      const std::vector<int64_t> kept =
          adamw_runs(part, bucket, part.grid.slice_of(place));
      for (int32_t h = 0; h < buffer.num_homes; ++h) {
        const int32_t first =
            part.grid.rank(buffer.stage, part.stage_home(buffer, h),
                           place * part.grid.tp_ranks());
        for (int32_t r = first; r < first + part.grid.tp_ranks(); ++r)
          ranks[static_cast<size_t>(r)].element_wise_bytes +=
              passes.adamw_bytes(kept[static_cast<size_t>(h)]);
      }
    }
  }
}

}  // namespace

void add_element_wise(const PlanPart& part, const RuleFacts& rule,
                      std::vector<RankCost>& ranks) {
  const ElementWise passes(part, rule);
  for (RankCost& rank : ranks)
    rank.element_wise_bytes = passes.matrix_bytes(rank);
  add_adamw(part, passes, ranks);
}

}  // namespace canzona
