// QK-clip in a run: what rows of queries and keys a step scales.
//
//   RunQkClip clip({.tau = 100}, decoder, plan, at, world);
//   QkClipped found = clip.look(stage.largest_logits());   // after backward
//   settings.row_factors = found.rows;
//
// All ranks must construct it and call it alike, and get the same result.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/model/decoder_config.h"
#include "canzona/plan/mesh.h"
#include "canzona/plan/plan.h"
#include "canzona/rules/qk_clip.h"
#include "canzona/runtime/options.h"

namespace canzona::train {

struct QkClipped {
  std::vector<RowFactors> rows;  // of layers of which heads are clipped
  int64_t heads = 0;             // that are clipped
  double largest = 0;            // of all logits
  // Names the first layer and head whose maximum is not finite; "": none. Such
  // a step is an error unless it is skipped.
  std::string fault;
};

class RunQkClip {
 public:
  // Plan and world must outlive it.
  RunQkClip(const QkClip& clip, const DecoderConfig& decoder, const Plan& plan,
            const Coordinates& at, Communicator& world);

  // `own`: the largest logits of this rank's layers and heads, over all
  // micro-batches of the step (Decoder::largest_logits).
  QkClipped look(std::span<const float> own);

 private:
  void add_layer(int64_t layer, QkClipped& found) const;

  QkClip clip_;
  const Plan& plan_;
  TpGroup<float> ranks_;
  int64_t heads_;                 // of a layer
  int64_t groups_;                // of these
  std::vector<int32_t> tensors_;  // by layer: its q, k and v; -1: frozen
  int64_t first_layer_, num_layers_, first_head_;  // of this rank
  std::vector<float> largest_;                     // by layer and head
  std::vector<int64_t> scratch_;
};

}  // namespace canzona::train
