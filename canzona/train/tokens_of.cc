#include "canzona/train/tokens_of.h"

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

Tokenizer tokenizer_of(const TrainConfig& config) {
  const std::string key =
      cat("data.tokenizer (", config.origin("data.tokenizer"), ")");
  try {
    return load_tokenizer(config.data.tokenizer);
  } catch (const UsageError& error) {
    throw UsageError(cat(key, ": ", error.what()));
  }
}

}  // namespace

TokenOptions token_options_of(const TrainConfig& config) {
  TokenOptions options{.vocab = config.model.vocab,
                       .seed = static_cast<uint64_t>(config.seed)};
  // Weights that were trained on tokens are meaningless on bytes.
  constexpr int64_t kBytes = 256;
  options.allows_bytes = config.init.empty() || config.model.vocab <= kBytes;
  if (config.data.tokenizer.empty()) return options;
  options.tokenizer = tokenizer_of(config);
  const int64_t needed = options.tokenizer->vocab();
  if (needed > config.model.vocab)
    throw UsageError(cat("model.vocab ", config.model.vocab, " (",
                         config.origin("model.vocab"), "): the tokenizer ",
                         quoted(config.data.tokenizer, 300), " has ", needed,
                         " tokens; try model.vocab=", needed));
  return options;
}

}  // namespace canzona
