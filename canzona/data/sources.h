// These functions are shared by token sources.
#pragma once

#include <memory>
#include <string>

#include "canzona/data/token_source.h"
#include "canzona/data/tokenizer.h"

namespace canzona {

// Opens all text files below `path`.
std::unique_ptr<TokenSource> open_folder(const std::string& path,
                                         const TokenOptions& options);

// Tokenizes the bytes of `text`.
std::unique_ptr<TokenSource> tokenize(std::unique_ptr<TokenSource> text,
                                      const Tokenizer& tokenizer);

// Computes TokenSource::digest() for any source.
std::string digest_of(const TokenSource& tokens);

}  // namespace canzona
