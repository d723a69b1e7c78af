// Makes the decoder that a configuration describes.
#pragma once

#include "canzona/model/decoder_config.h"
#include "canzona/train/config.h"

namespace canzona {

inline DecoderConfig decoder_of(const TrainConfig& config) {
  const auto& m = config.model;
  Architecture architecture{.layers = m.layers,
                            .hidden = m.hidden,
                            .ffn = m.ffn,
                            .vocab = m.vocab,
                            .heads = m.heads,
                            .kv_heads = m.kv_heads,
                            .head_dim = m.head_dim,
                            .tied = m.tied,
                            .qk_norm = m.qk_norm};
  if (m.experts > 0)
    architecture.experts = {
        .count = m.experts, .ffn = m.expert_ffn, .shared = m.shared_experts};
  return {.architecture = architecture,
          .length = m.length,
          .micro_batch = config.batch.micro,
          .norm_epsilon = m.norm_epsilon,
          .rope_base = m.rope_base,
          .experts_per_token = m.experts_per_token,
          .balance_coefficient = m.balance_coefficient,
          .recompute = m.recompute};
}

}  // namespace canzona
