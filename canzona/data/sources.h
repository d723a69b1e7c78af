// The kinds of token sources; open_tokens() chooses among them.
#pragma once

#include <memory>
#include <string>

#include "canzona/data/token_source.h"

namespace canzona {

// One file: bytes of text, or llm.c's.
std::unique_ptr<TokenSource> open_text_file(const std::string& path,
                                            const TokenOptions& options);
std::unique_ptr<TokenSource> open_llmc(const std::string& path,
                                       const TokenOptions& options);
// `stem`.idx and `stem`.bin.
std::unique_ptr<TokenSource> open_megatron(const std::string& stem,
                                           const TokenOptions& options);
// All text files below `path`.
std::unique_ptr<TokenSource> open_folder(const std::string& path,
                                         const TokenOptions& options);
std::unique_ptr<TokenSource> open_synthetic(const TokenOptions& options);

// What TokenSource::digest() promises, for any source.
std::string digest_of(const TokenSource& tokens);

}  // namespace canzona
