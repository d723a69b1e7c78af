// These functions are shared by token sources.
#pragma once

#include <memory>
#include <string>

#include "canzona/data/token_source.h"
#include "canzona/data/tokenizer.h"

namespace canzona {

// All text files below `path`.
std::unique_ptr<TokenSource> open_folder(const std::string& path,
                                         const TokenOptions& options);

// The bytes of `text` as tokens of a tokenizer.
std::unique_ptr<TokenSource> tokenize(std::unique_ptr<TokenSource> text,
                                      const Tokenizer& tokenizer);

// Computes what TokenSource::digest() promises, for any source.
std::string digest_of(const TokenSource& tokens);

}  // namespace canzona
