// Opens the tokens that a configuration names.
#pragma once

#include "canzona/data/token_source.h"
#include "canzona/train/config.h"

namespace canzona {

// UsageError names the key if the tokenizer cannot be read or has more tokens
// than the model.
TokenOptions token_options_of(const TrainConfig& config);

}  // namespace canzona
